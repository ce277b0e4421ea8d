"""Man pages in docs/man, from the definitions that `--help` is drawn from. `make docs` writes them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from ulnet.cli.lnetctl_grammar import COMMON, GROUPS, Command, commands_of
from ulnet.cli.lnetctl_words import Option
from ulnet.cli.lst_commands import EXAMPLE as LST_EXAMPLE
from ulnet.cli.lst_words import COMMANDS as LST
from ulnet.cli.lst_words import parser_of as lst_parser
from ulnet.cli.parsers import actions_of, parsers_of
from ulnet.cli.ulnet import COMMANDS as ULNET

__all__ = ["FOLDER", "pages"]

FOLDER = Path(__file__).parent.parent / "docs" / "man"
_FILES = """\
.TP
.I /run/ulnet/lnetd.sock
control socket of root's lnetd; others: $XDG_RUNTIME_DIR/ulnet/lnetd.sock
.TP
.I /etc/lnet.conf
what lnetd is told when it starts as a service
"""
_LST = (
    "It drives one session of tests over many nodes: lnetd keeps the session, or, where none answers, a node "
    "that the first command starts. IDs of nodes are NIDs with ranges, or pid-NID."
)
_STATUS = "0 on success, else 256 - errno of the first error; 255 for words that make no command."


def pages() -> dict[str, str]:
    """The text of every page, by its path below the folder."""
    found = {"man8/lnetctl.8": _lnetctl(), "man1/ulnet.1": _ulnet()}
    for group in GROUPS:
        found[f"man8/lnetctl-{group}.8"] = _group(group)
    found["man8/lst.8"] = _lst()
    found["man8/lnetd.8"] = _program("lnetd", "lnetd", 8, "an LNet node as a daemon")
    for name, summary in ULNET.items():
        found[f"man1/ulnet-{name}.1"] = _program(name, f"ulnet {name}", 1, summary)
    return found


# lnetctl -------------------------------------------------------------------------------------------------


def _lnetctl() -> str:
    rows = []
    for group in GROUPS:
        for command in commands_of(group):
            rows.append(f".TP\n.B {_text(' '.join(command.words))}\n{_text(command.summary)}\n")
    see = ", ".join(f"lnetctl\\-{_text(group)}(8)" for group in GROUPS)
    return (
        _head("lnetctl", 8, "configure and query an lnetd, in the words of the kernel's tool")
        + ".SH SYNOPSIS\n.B lnetctl\n[\\-\\-socket PATH] [COMMAND] [OPTIONS] [ARGS]\n"
        + ".SH DESCRIPTION\nWithout a command it reads commands, one a line, until\n.B quit\n"
        + "or the end of the input. Output is YAML; errors are YAML on standard error. An option may be\n"
        + "abbreviated as long as it is unique.\n"
        + ".SH COMMANDS\n"
        + "".join(rows)
        + f".SH EXIT STATUS\n{_text(_STATUS)}\n.SH ENVIRONMENT\n.TP\n.B ULNET_SOCKET\nas \\-\\-socket\n"
        + f".SH FILES\n{_FILES}.SH SEE ALSO\nlnetd(8), ulnet(1), {see}\n"
    )


def _group(group: str) -> str:
    commands = commands_of(group)
    name = f"lnetctl-{group}"
    summary = commands[0].summary if len(commands) == 1 else ", ".join(_last(command) for command in commands)
    text = _head(name, 8, summary) + ".SH SYNOPSIS\n"
    text += "".join(f"{_synopsis(command)}.br\n" for command in commands)
    text += ".SH DESCRIPTION\n"
    for command in commands:
        summary = command.summary[:1].upper() + command.summary[1:]
        text += f".SS {_text(' '.join(command.words))}\n{_text(summary)}.\n"
        text += "".join(_option(option) for option in command.options)
        if command.examples:
            text += ".PP\nExample:\n" + _verbatim(command.examples)
    text += ".SH OPTIONS OF ALL COMMANDS\n" + "".join(_option(option) for option in COMMON)
    return text + f".SH EXIT STATUS\n{_text(_STATUS)}\n.SH SEE ALSO\nlnetctl(8), lnetd(8)\n"


def _last(command: Command) -> str:
    return " ".join(command.words[1:]) or command.words[0]


def _synopsis(command: Command) -> str:
    options = "".join(f" [\\-\\-{_text(option.name)}{_value(option)}]" for option in command.options)
    operands = f" {_text(command.operands)}" if command.operands else ""
    return f".B lnetctl {_text(' '.join(command.words))}\n{options.strip()}{operands}\n".replace("\n\n", "\n")


def _value(option: Option) -> str:
    return f" {_text(option.value)}" if option.value else ""


def _option(option: Option) -> str:
    short = f", \\-{option.short}" if option.short else ""
    value = f" [{_text(option.value)}]" if option.kind == "level" else _value(option)
    return f".TP\n.B \\-\\-{_text(option.name)}{short}{value}\n{_text(option.help)}\n"


# ulnet and lnetd -----------------------------------------------------------------------------------------


def _ulnet() -> str:
    rows = "".join(f".TP\n.B {_text(name)}\n{_text(summary)}\n" for name, summary in ULNET.items())
    see = ", ".join(f"ulnet\\-{_text(name)}(1)" for name in ULNET)
    return (
        _head("ulnet", 1, "LNet in user space")
        + ".SH SYNOPSIS\n.B ulnet\nCOMMAND [WORDS]\n.SH COMMANDS\n"
        + rows
        + f".SH SEE ALSO\n{see}, lnetd(8), lnetctl(8)\n"
    )


def _program(module: str, name: str, section: int, summary: str) -> str:
    text = _head(name.replace(" ", "-"), section, summary)
    found = parsers_of(module)
    text += ".SH SYNOPSIS\n" + _verbatim(_usage(parser) for parser in found)
    text += f".SH DESCRIPTION\n{_text(found[0].description or summary)}\n.SH OPTIONS\n"
    described: set[str] = set()
    for parser in found:
        for action in actions_of(parser):
            entry = _action(action)
            if entry not in described:
                text += entry
            described.add(entry)
    if found[0].epilog:
        text += ".SH NOTES\n" + _verbatim(found[0].epilog.splitlines())
    return text + ".SH SEE ALSO\nulnet(1), lnetd(8), lnetctl(8)\n"


def _usage(parser: argparse.ArgumentParser) -> str:
    """The synopsis; not argparse's, which depends on the terminal and on Python's version."""
    parts = [parser.prog]
    for action in actions_of(parser):
        name = action.option_strings[-1] if action.option_strings else ""
        value = _metavar(action)
        word = " ".join(part for part in (name, value) if part)
        optional = bool(action.option_strings) or action.nargs in ("?", "*")
        parts.append(f"[{word}]" if optional and not action.required else word)
    return " ".join(parts)


def _metavar(action: argparse.Action) -> str:
    if action.option_strings and action.nargs == 0:
        return ""
    if action.choices is not None and not action.metavar:
        return "{" + ",".join(map(str, action.choices)) + "}"
    name = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    return str(name if isinstance(name, str) else " ".join(name)) + (
        "..." if action.nargs in ("+", "*") else ""
    )


def _action(action: argparse.Action) -> str:
    names = ", ".join(action.option_strings)
    head = " ".join(part for part in (names, _metavar(action)) if part)
    told = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
    return f".TP\n.B {_text(head)}\n{_text(told)}\n"


_BRW = (
    ("read, r", "servers send to clients (default)"),
    ("write, w", "clients send to servers"),
    ("size=N, s=N", "bytes of each request, at most 1M; k and m stand for 1,024 and 1,048,576 (4096)"),
    (
        "check=WORD, c=WORD",
        "what the receiving side checks: none (default), simple (both ends of each page), full (each word), "
        "discard (nothing; the data may be thrown away)",
    ),
    ("off=N", "where data begin in the client's first page: a multiple of 8 below 4096 (0)"),
    ("skip_rx_copy", "an old name of check=discard"),
)


def _lst() -> str:
    text = _head("lst", 8, "the console of LNet selftest")
    text += ".SH SYNOPSIS\n.B lst\n[\\-\\-socket PATH] COMMAND [OPTIONS] [ARGS]\n.SH DESCRIPTION\n"
    text += _text(f"{_LST}") + "\n"
    text += ".SH OPTIONS\n.TP\n.B \\-\\-socket PATH\nthe control socket of the node to ask; no other one is\n"
    text += ".SH COMMANDS\n"
    for name, (summary, _) in LST.items():
        parser = lst_parser(name)
        text += f".SS {_text(name)}\n{_text(summary[:1].upper() + summary[1:])}.\n.PP\n"
        text += _verbatim([_usage(parser)])
        text += "".join(_action(action) for action in actions_of(parser) if action.dest != "help")
    text += ".SH PARAMETERS OF BRW\n"
    for words, what in _BRW:
        text += f".TP\n.B {_text(words)}\n{_text(what)}\n"
    text += ".SH ENVIRONMENT\n.TP\n.B LST_SESSION\nthe key of the session, a number\n"
    text += ".TP\n.B LST_FEATURES\nits features: 1 (default) for bulk of any length, 0 for whole pages\n"
    text += (
        ".TP\n.B ULNET_SOCKET\nthe control socket of lnetd; that of a node of its own is lst.sock beside it\n"
    )
    text += ".SH EXIT STATUS\n0 on success, 1 where the command fails, 2 for words that make none.\n"
    text += ".SH EXAMPLE\n" + _verbatim(LST_EXAMPLE)
    return text + ".SH SEE ALSO\nulnet\\-selftest(1), lnetd(8), lnetctl(8)\n"


# roff ----------------------------------------------------------------------------------------------------


def _head(name: str, section: int, summary: str) -> str:
    title = f'.TH {name.upper()} {section} "" "ulnet" "LNet in user space"'
    return f"{title}\n.SH NAME\n{_text(name)} \\- {_text(summary)}\n"


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + escaped if escaped[:1] in (".", "'") else escaped


def _verbatim(lines: Iterable[str]) -> str:
    return ".nf\n" + "".join(f"{_text(line)}\n" for line in lines) + ".fi\n"


def main() -> int:
    """Write the pages; those of commands that are gone go."""
    FOLDER.mkdir(exist_ok=True)
    wanted = pages()
    for old in FOLDER.glob("man*/*"):
        if f"{old.parent.name}/{old.name}" not in wanted:
            old.unlink()
    for name, text in wanted.items():
        path = FOLDER / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    print(f"{len(wanted)} pages written to docs/man")
    return 0


if __name__ == "__main__":
    sys.exit(main())

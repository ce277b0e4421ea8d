"""lnetctl: the real tool's words, spoken to an lnetd over its control socket (spec lnetctl.md).

Nothing slow is imported here (no asyncio, no netlink, no YAML reader): it is called in loops.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence

from ulnet import __version__
from ulnet.cli.lnetctl_grammar import GROUPS, Command, commands_of
from ulnet.cli.lnetctl_help import command_help, list_commands, overview
from ulnet.cli.lnetctl_options import Parsed, UsageError, parse
from ulnet.cli.output import run_to_its_end

__all__ = ["main", "run"]

USAGE = 255  # exit status for words that make no command
INCOMPLETE = 256 - errno.EINVAL  # as the real tool for a command that lacks its second word
_TOP = Command(("lnetctl",), "", operands="COMMAND")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, or without words the prompt."""
    words = list(sys.argv[1:] if argv is None else argv)
    return run_to_its_end("lnetctl", lambda: run(words), lambda number: 256 - number)


def run(words: Sequence[str], socket_path: str | None = None) -> int:
    """The exit status of one command line."""
    if words[:1] == ["--complete"]:
        from ulnet.cli.complete import lnetctl_words

        print(*(f"{word}\n" for word in lnetctl_words(words[1:])), sep="", end="")
        return 0
    try:
        head, rest = _split(words)
    except UsageError as bad:
        return _usage(str(bad))
    socket_path = head.text("socket") or socket_path
    if head.flag("socket") and not head.text("socket"):
        return _usage("--socket names no path")
    if head.flag("help"):
        rest = ["help"]
    if not rest:
        from ulnet.cli.lnetctl_prompt import prompt

        return prompt(lambda line: run(line, socket_path))
    return _run_own(rest) if rest[0] in _OWN else _run_command(rest, socket_path)


def _split(words: Sequence[str]) -> tuple[Parsed, list[str]]:
    """lnetctl's own options in front, and the rest."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in _OWN:
        at += 2 if words[at] == "--socket" else 1
    return parse(_TOP, words[:at]), list(words[at:])


def _run_own(words: Sequence[str]) -> int:
    word, names = words[0].removeprefix("--").removeprefix("-"), words[1:]
    if word in ("version", "V"):
        print(f"lnetctl {__version__} (ulnet)")
    elif word == "list-commands":
        print(list_commands(), end="")
    elif names:
        return _help(names)
    else:
        print(overview(), end="")
    return 0


_OWN = frozenset({"help", "--help", "-h", "version", "--version", "-V", "list-commands", "--list-commands"})


def _help(names: Sequence[str]) -> int:
    known = 0
    while known < len(names) and commands_of(*names[: known + 1]):
        known += 1
    if known < len(names) and (known == 0 or commands_of(*names[:known])[0].words != tuple(names[:known])):
        return _unknown(names[known], names[:known])
    print(command_help(*names[:known]), end="")
    return 0


def _run_command(words: Sequence[str], socket_path: str | None) -> int:
    known = 0
    while True:
        commands = commands_of(*words[: known + 1])
        if not commands:
            return _unknown(words[known], words[:known])
        known += 1
        if commands[0].words == tuple(words[:known]):
            return _run_one(commands[0], words[known:], socket_path)
        if len(words) == known or words[known] in ("help", "--help", "-h"):
            print(command_help(*words[:known]), end="")
            return INCOMPLETE if len(words) == known else 0


def _run_one(command: Command, words: Sequence[str], socket_path: str | None) -> int:
    name = " ".join(command.words)
    try:
        parsed = parse(command, words)
    except UsageError as bad:
        print(f"{command.words[-1]}: {bad}. See 'lnetctl {name} --help'.", file=sys.stderr)
        return USAGE
    if parsed.flag("help"):
        print(command_help(*command.words), end="")
        return 0
    _load_msgspec()
    from ulnet.cli.lnetctl_actions import perform

    return perform(command, parsed, parsed.text("socket") or socket_path)


def _load_msgspec() -> None:
    """Without typing_extensions: where it is installed msgspec takes it for what Python has as well.

    That is a seventh of lnetctl's whole time.
    """
    name = "typing_extensions"
    if name in sys.modules:
        return
    sys.modules[name] = None  # type: ignore[assignment]  # this is how Python is told that there is none
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules[name]


def _unknown(word: str, before: Sequence[str]) -> int:
    """A word that is no command, after words that are the beginning of some."""
    from difflib import get_close_matches  # late: right words do not need it

    known = GROUPS
    if before:
        known = tuple(dict.fromkeys(command.words[len(before)] for command in commands_of(*before)))
    close = get_close_matches(word, known, n=1)
    way_out = "See 'lnetctl --list-commands'."
    if close:
        way_out = f"did you mean 'lnetctl {' '.join([*before, close[0]])}'?"
    print(f"lnetctl: '{word}' is not a valid command. {way_out}", file=sys.stderr)
    return USAGE


def _usage(text: str) -> int:
    print(f"lnetctl: {text}. See 'lnetctl --help'.", file=sys.stderr)
    return USAGE


if __name__ == "__main__":
    raise SystemExit(main())

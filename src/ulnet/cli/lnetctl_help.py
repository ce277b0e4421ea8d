"""lnetctl's help, drawn from the grammar."""

from __future__ import annotations

from ulnet.cli.lnetctl_grammar import COMMANDS, GROUPS, Command, commands_of

__all__ = ["command_help", "list_commands", "overview"]

_OVERVIEW = """\
usage: lnetctl [--socket PATH] [COMMAND] [OPTIONS]... [ARGS]
Without any parameters, interactive mode is invoked.

{commands}

Try 'lnetctl help <COMMAND>', or 'lnetctl --list-commands' for a list of commands. Example:

  lnetctl net add --net tcp --if eth0

--socket PATH, or the variable ULNET_SOCKET, tells which lnetd to talk to. An error is YAML on stderr;
the exit status is then 256 - errno.
"""

_OWN_WORDS = ("quit", "exit", "help", "--help", "version", "--version", "list-commands", "--list-commands")


def overview() -> str:
    """`lnetctl help`."""
    width = max(len(" ".join(command.words)) for command in COMMANDS) + 2
    rows = [f"  {' '.join(command.words):<{width}}{command.summary}" for command in COMMANDS]
    return _OVERVIEW.format(commands="\n".join(rows))


def command_help(*words: str) -> str:
    """All commands that begin with these words."""
    return "\n".join(_one(command) for command in commands_of(*words))


def _one(command: Command) -> str:
    head = " ".join((*command.words, *([command.operands] if command.operands else [])))
    lines = [f"{head}: {command.summary}"]
    for option in command.options:
        short = f", -{option.short}" if option.short else ""
        value = f" {option.value}" if option.value else ""
        if option.kind == "level":
            value = f" [{option.value}]"
        lines.append(f"\t--{option.name}{short}{value}: {option.help}")
    lines += [f"\texample: {example}" for example in command.examples]
    return "\n".join(lines) + "\n"


def list_commands() -> str:
    """`lnetctl --list-commands`, in four columns."""
    words = (*_OWN_WORDS, *GROUPS)
    rows = [words[at : at + 4] for at in range(0, len(words), 4)]
    return "".join("".join(f"{word:<20}" for word in row).rstrip() + "\n" for row in rows)

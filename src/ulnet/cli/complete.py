"""What may come next on a command line of lnetctl, ulnet or lst: shells ask with `--complete WORDS…`."""

from __future__ import annotations

from collections.abc import Sequence

from ulnet.cli.lnetctl_grammar import COMMANDS, COMMON, GROUPS, Option, commands_of

__all__ = ["lnetctl_words", "lst_words", "ulnet_words"]

_BRW = (
    "read",
    "write",
    "size=4k",
    "size=64k",
    "size=1M",
    "check=none",
    "check=simple",
    "check=full",
    "check=discard",
)


def lnetctl_words(words: Sequence[str]) -> list[str]:
    """Candidates for the last word, which may be empty; none where a file or a value comes."""
    *typed, prefix = words or [""]
    before = _without_socket(typed)
    if before is None:
        return []
    known = 0
    while known < len(before) and commands_of(*before[: known + 1]):
        known += 1
        if commands_of(*before[:known])[0].words == tuple(before[:known]):
            return _matching(prefix, _options(tuple(before[:known]), before[known:]))
    if known < len(before):
        return []
    if not before:
        return _matching(prefix, [*GROUPS, "help", "quit", "exit", "--help", "--version", "--list-commands"])
    return _matching(prefix, dict.fromkeys(command.words[known] for command in commands_of(*before)))


def _without_socket(words: Sequence[str]) -> list[str] | None:
    """The words that make the command; None where the socket's path comes."""
    if words and words[0] == "--socket":
        return list(words[2:]) if len(words) > 1 else None
    return list(words)


def _options(command: tuple[str, ...], before: Sequence[str]) -> list[str]:
    found = next(one for one in COMMANDS if one.words == command)
    options: Sequence[Option] = (*found.options, *COMMON)
    if before and any(option.value and before[-1] == f"--{option.name}" for option in options):
        return []  # its value comes
    return [f"--{option.name}" for option in options if f"--{option.name}" not in before]


def ulnet_words(words: Sequence[str]) -> list[str]:
    """As lnetctl_words."""
    from ulnet.cli.parsers import actions_of, parsers_of
    from ulnet.cli.ulnet import COMMANDS as ULNET

    *before, prefix = words or [""]
    if not before:
        return _matching(prefix, [*ULNET, "--help", "--version"])
    if before[0] not in ULNET:
        return []
    options: list[str] = []
    for parser in parsers_of(before[0]):
        for action in actions_of(parser):
            takes_value = action.nargs != 0
            if takes_value and action.option_strings and before[-1] in action.option_strings:
                return []
            options += [name for name in action.option_strings if name.startswith("--")]
    return _matching(prefix, dict.fromkeys(options)) if prefix.startswith("-") else []


def lst_words(words: Sequence[str]) -> list[str]:
    """As lnetctl_words."""
    from ulnet.cli.lst_words import COMMANDS as LST
    from ulnet.cli.lst_words import parser_of
    from ulnet.cli.parsers import actions_of

    *before, prefix = words or [""]
    if before[:1] == ["--socket"]:
        if len(before) < 2:
            return []  # a path comes
        del before[:2]
    if not before:
        return _matching(prefix, [*LST, "--help", "--socket", "--version"])
    if before[0] not in LST:
        return []
    actions = [action for action in actions_of(parser_of(before[0])) if action.option_strings]
    if any(action.nargs != 0 and before[-1] in action.option_strings for action in actions):
        return []  # its value comes
    options = [name for action in actions for name in action.option_strings if name.startswith("--")]
    left = [name for name in options if name not in before]
    return (_test_words(before, prefix) if before[0] == "add_test" else []) + _matching(prefix, left)


def _test_words(before: Sequence[str], prefix: str) -> list[str]:
    """The kinds of tests, or what is left of brw's parameters."""
    if "brw" not in before:
        return [] if "ping" in before else _matching(prefix, ["brw", "ping"])
    if prefix == "=" or before[-1] == "=":  # to bash, a word ends there
        name = before[-1] if prefix == "=" else before[-2]
        values = [word.partition("=")[2] for word in _BRW if word.startswith(f"{name}=")]
        return _matching("" if prefix == "=" else prefix, values)
    given = {word.partition("=")[0] for word in before}
    if given & {"read", "write"}:
        given |= {"read", "write"}
    return _matching(prefix, [word for word in _BRW if word.partition("=")[0] not in given])


def _matching(prefix: str, candidates: Sequence[str] | dict[str, None]) -> list[str]:
    return [word for word in candidates if word.startswith(prefix)]

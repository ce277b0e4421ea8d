"""The manual tells the truth: the commands take each command line in it, and none of them is left out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest

from support.shared import ROOT
from ulnet.cli.lnetctl_grammar import GROUPS, commands_of
from ulnet.cli.lnetctl_kernel import KERNEL_ONLY
from ulnet.cli.lnetctl_options import UsageError, parse
from ulnet.cli.parsers import parsers_of
from ulnet.cli.ulnet import COMMANDS as ULNET
from ulnet.dlc.config import read_config

MANUAL = (ROOT / "docs/manual.md").read_text()
PROGRAMS = ("lnetctl", "ulnet", "lnetd")
NOT_WORK = {"help", "exit", "quit", "version", "list-commands"}


def code_lines(text: str) -> Iterator[str]:
    """The lines of code blocks, fenced or indented."""
    fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield line.strip()


def command_lines() -> list[list[str]]:
    """Command lines of ours, as words; one that shows what may stand there, [--option X], is none."""
    found = []
    for line in code_lines(MANUAL):
        bare = line.removeprefix("$ ").split(" | ")[-1].split(" > ")[0]
        if bare.split(" ")[0] in PROGRAMS and "[--" not in bare:
            found.append(shlex.split(bare, comments=True))
    return found


def takes(words: list[str]) -> bool:
    """Whether the program's own parser takes the words."""
    program, *rest = words
    if program == "lnetctl":
        return lnetctl_takes(rest)
    if program == "ulnet":
        program, *rest = rest
        rest = rest[1:] if (program, rest[:1]) == ("sim", ["run"]) else rest  # it chooses the parser
    return any(parser_takes(parser, rest) for parser in parsers_of(program))


def lnetctl_takes(words: list[str]) -> bool:
    for count in range(len(words), 0, -1):
        for command in commands_of(*words[:count]):
            if command.words == tuple(words[:count]):
                try:
                    parse(command, words[count:])
                except UsageError:
                    return False
                return True
    return False


def parser_takes(parser: object, words: list[str]) -> bool:
    try:
        parser.parse_args(words)  # type: ignore[attr-defined]  # argparse's, made by the command itself
    except SystemExit:
        return False
    return True


def test_a_wrong_line_would_be_noticed() -> None:
    assert not takes(["lnetctl", "net", "banana"])
    assert not takes(["lnetctl", "net", "add", "--banana"])
    assert not takes(["ulnet", "ping"])


@pytest.mark.requirement("doc-005")
@pytest.mark.parametrize("words", command_lines(), ids=" ".join)
def test_each_command_line_is_one_that_is_taken(words: list[str]) -> None:
    assert takes(words)


@pytest.mark.requirement("doc-005")
def test_each_configuration_file_is_one_that_is_taken() -> None:
    pages = [(ROOT / "docs" / f"{page}.md").read_text() for page in ("manual", "install", "security")]
    files = [file for page in pages for file in re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.M)]
    files = [file for file in files if not file.startswith("scenario:")]
    assert len(files) == 4
    for file in files:
        found = read_config(file, "exec" if file.startswith("ping:") else "add")
        assert found.steps
        assert [error.descr for error in found.errors] == [], file


@pytest.mark.requirement("doc-005")
def test_no_command_is_left_out() -> None:
    kernels = {command.words[0] for command in KERNEL_ONLY}
    missing = [f"lnetctl {name}" for name in GROUPS if name not in kernels | NOT_WORK and not told(name)]
    missing += [f"ulnet {name}" for name in ULNET if not re.search(rf"`?ulnet {name}\b", MANUAL)]
    assert missing == []


def told(name: str) -> bool:
    """With lnetctl before it, or as a word of the list of commands."""
    return bool(re.search(rf"lnetctl {name}\b|`{name}\b", MANUAL))

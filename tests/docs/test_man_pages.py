"""Man pages, completion and what packages install: drawn from the commands' own definitions, and usable."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from man_pages import FOLDER, pages
from support.shared import ROOT
from ulnet.cli.complete import lnetctl_words, lst_words, ulnet_words
from ulnet.cli.lnetctl_grammar import COMMANDS
from ulnet.cli.lst_words import COMMANDS as LST
from ulnet.cli.parsers import actions_of, parsers_of
from ulnet.cli.ulnet import COMMANDS as ULNET

PAGES = pages()


@pytest.mark.requirement("doc-010")
def test_the_pages_are_up_to_date() -> None:
    there = {f"{path.parent.name}/{path.name}": path.read_text() for path in FOLDER.glob("man*/*")}
    if there != PAGES:
        pytest.fail("docs/man is out of date: run `make docs` and commit it", pytrace=False)


@pytest.mark.requirement("doc-010")
def test_every_command_and_option_has_its_place() -> None:
    for command in COMMANDS:
        page = PAGES[f"man8/lnetctl-{command.words[0]}.8"].replace("\\-", "-")
        assert f".SS {' '.join(command.words)}\n" in page
        assert all(f".B --{option.name}" in page for option in command.options)
        assert all(example in page.replace("\\e", "\\") for example in command.examples)
    for name in ULNET:
        page = PAGES[f"man1/ulnet-{name}.1"].replace("\\-", "-")
        for parser in parsers_of(name):
            assert all(name in page for action in actions_of(parser) for name in action.option_strings)


@pytest.mark.requirement("doc-010")
def test_the_pages_are_good_roff() -> None:
    for name, text in PAGES.items():
        macros = {line.split()[0] for line in text.splitlines() if line.startswith(".")}
        assert macros <= {".TH", ".SH", ".SS", ".TP", ".PP", ".B", ".I", ".nf", ".fi", ".br"}, name
        assert text.count("\n.nf\n") == text.count("\n.fi\n")
        if shutil.which("groff") is None:  # which would say more
            continue
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-z"], input=text, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), name


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ex"], ["explain", "export", "exit"]),
        (["net", ""], ["add", "del", "show", "set"]),
        (["net", "s"], ["show", "set"]),
        (["net", "add", "--ne"], ["--net"]),
        (["net", "add", "--net", ""], []),
        (["net", "add", "--net", "tcp", "--ne"], []),
        (["--socket", ""], []),
        (["--socket", "/x", "sta"], ["stats"]),
        (["selection", "net", "d"], ["del"]),
        (["banana", ""], []),
    ],
)
def test_lnetctl_completes_words(words: list[str], expected: list[str]) -> None:
    assert lnetctl_words(words) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["do"], ["doctor"]),
        (["check", "--l"], ["--live"]),
        (["check", "--host", ""], []),
        (["check", ""], []),
        (["banana", ""], []),
    ],
)
def test_ulnet_completes_words(words: list[str], expected: list[str]) -> None:
    assert ulnet_words(words) == expected


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    text = (ROOT / "packaging/systemd/lnetd.service").read_text()
    unit = re.findall(r"^\[(\w+)\]$", text, re.MULTILINE)
    assert unit == ["Unit", "Service", "Install"]
    assert "Type=notify" in text and "import /etc/lnet.conf" in text
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed (Debian: apt-get install systemd)")
    assert text.count("ExecStart=lnetd ") == 1
    text = text.replace("ExecStart=lnetd ", "ExecStart=/bin/true ")
    file = tmp_path / "lnetd.service"
    file.write_text(text.replace("Documentation=man:lnetd(8) man:lnetctl(8)\n", ""))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(file)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["exporter", "record"])
def test_the_units_of_watching_are_ones_that_systemd_takes(tmp_path: Path, name: str) -> None:
    text = (ROOT / f"packaging/systemd/ulnet-{name}.service").read_text()
    start = f"ExecStart=/usr/bin/ulnet {name} $ULNET_{name.upper()}_OPTIONS"
    assert start in text
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed (Debian: apt-get install systemd)")
    file = tmp_path / f"ulnet-{name}.service"
    file.write_text(text.replace("/usr/bin/ulnet ", "/bin/true "))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(file)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([""], [*LST, "--help", "--socket", "--version"]),
        (["--so"], ["--socket"]),
        (["--socket", ""], []),
        (["--socket", "s", "ru"], ["run"]),
        (["--socket", "s", "run", "--t"], ["--timeout"]),
        (["sh"], ["show_session", "show_error"]),
        (["banana", ""], []),
        (["run", "--t"], ["--timeout"]),
        (["run", "--timeout", ""], []),
        (["end_session", ""], ["--help"]),
        (["stat", "--read", "--r"], ["--rpc", "--rate"]),
        (["add_test", "b"], ["brw"]),
        (["add_test", "--from", "b"], []),
        (["add_test", "brw", "r"], ["read"]),
        (["add_test", "brw", "write", "r"], []),
        (["add_test", "brw", "check=s"], ["check=simple"]),
        (["add_test", "brw", "check", "="], ["none", "simple", "full", "discard"]),
        (["add_test", "brw", "check", "=", "d"], ["discard"]),
        (["add_test", "brw", "size=1M", "s"], []),
        (["add_test", "ping", "r"], []),
    ],
)
def test_what_may_come_next_of_lst(words: list[str], expected: list[str]) -> None:
    assert lst_words(words) == expected

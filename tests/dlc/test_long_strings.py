"""Strings and files that are made to be read for ever: each is read, or refused in words."""

from __future__ import annotations

import difflib
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest

from support.daemon import PATIENCE
from ulnet.dlc.config import read_config
from ulnet.dlc.legacy import LegacyError, read_networks
from ulnet.dlc.legacy_text import read_as, read_text

_READ = """
import sys
from ulnet.dlc.legacy import LegacyError, read_ip2nets, read_networks
from ulnet.dlc.legacy_text import read_text
from ulnet.dlc.modprobe import read_modprobe

try:
    print(len({how}({text})))
except LegacyError as bad:
    print("refused", bad)
"""


def _read(how: str, text: str) -> str:
    """What reading says; formerly the time for it grew with the square or cube of the text."""
    done = subprocess.run(
        [sys.executable, "-c", _READ.replace("{how}", how).replace("{text}", text)],
        capture_output=True, text=True, check=True, timeout=PATIENCE,
    )  # fmt: skip
    return done.stdout


@pytest.mark.parametrize("how", ["read_text", "read_networks"])
def test_blanks_behind_a_net(how: str) -> None:
    assert _read(how, "'tcp' + ' ' * 60000 + '-'").startswith("refused ")
    assert _read(how, "'tcp' + ' ' * 30000 + '(eth0)' + ' ' * 30000 + '[0]'") == "1\n"


def test_blanks_in_a_file_of_modprobe() -> None:
    text = "'options lnet networks=\"tcp' + ' ' * 60000 + '-\"'"
    assert _read("read_modprobe", text).startswith("refused ")


@pytest.mark.parametrize("net", ["tcp", "bond0"])
def test_blanks_in_an_option(net: str) -> None:
    text = f"'{net}(mode=x' + ' ' * 65000 + 'y)'"
    assert _read("read_networks", text).startswith("refused ")


def test_empty_lines_before_something() -> None:
    assert _read("read_text", "'\\n' * 300000 + 'tcp0(eth0)'").startswith("refused the string has 300010")


def test_words_behind_an_assignment() -> None:
    assert _read("read_text", "'networks=tcp ' + 'x ' * 30000").startswith("refused ")


@pytest.mark.parametrize("read", [read_text, lambda text: read_as("networks", text)])
def test_a_name_in_its_own_value(read: Callable[[str], object]) -> None:
    for times in (2, 3, 889, 7000):
        with pytest.raises(LegacyError, match="'networks=' stands in the value of networks=: write the name"):
            read("networks=" * times)
        with pytest.raises(LegacyError, match="'routes=' stands in the value of networks="):
            read("networks=" + "routes=" * (times - 1))
    with pytest.raises(LegacyError):
        read("networks=" * 2 + "tcp0(eth0)")


def test_convert_tells_of_a_name_in_its_own_value() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ulnet", "convert", "networks=" * 2000],
        capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ulnet convert: error: bad text: 'networks=' stands in the value of")


def test_parentheses_and_cpts_are_those_of_before() -> None:
    for text in (
        "tcp0",
        " tcp0 ",
        "tcp0 (eth0) [0,1]",
        "tcp0(eth0[0],eth1)[0]",
        "tcp0(eth0, credits = 8 )[0-1] ",
    ):
        assert read_networks(text)
    for text in (
        "tcp0(eth0",
        "tcp0)",
        "tcp0(eth0)x",
        "tcp0(eth0)[0",
        "tcp0[0]x",
        "(eth0)",
        "tcp0(eth0)[0][1]",
    ):
        with pytest.raises(LegacyError):
            read_networks(text)


def test_thousands_of_unknown_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    look = difflib.get_close_matches

    def counted(word: str, names: Sequence[str], *, n: int, cutoff: float) -> list[str]:
        asked.append(word)
        return look(word, names, n=n, cutoff=cutoff)

    monkeypatch.setattr("difflib.get_close_matches", counted)
    found = read_config("".join(f"s{number}: 1\n" for number in range(2000)) + "nets:\n")
    assert len(found.errors) == 2001
    assert asked == [f"s{number}" for number in range(100)]
    assert "known are net, " in found.errors[99].descr
    assert (
        found.errors[100].descr == "line 101: invalid key 's100' in a file: correct the 100 before it first"
    )

"""The Debian package: its version, what goes into it, and what is told where it cannot be made.

`make install-trial` installs, upgrades, removes and purges it in a machine that systemd boots.
"""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import deb
import install_trial
from support.shared import ROOT
from wheel_check import installed_files

DEBIAN = ROOT / "packaging/debian"
IN_ORDER = [
    "0.1.0",
    "0.2.0.dev1",
    "0.2.0a1",
    "0.2.0b2",
    "0.2.0rc1",
    "0.2.0rc10",
    "0.2.0",
    "0.2.0.post1",
    "0.10.0",
]


def test_versions_have_debians_order() -> None:
    if shutil.which("dpkg") is None:
        pytest.skip("dpkg is not here: no Debian")
    versions = [deb.debian_version(version, 1) for version in IN_ORDER]
    for lower, higher in itertools.pairwise([*versions, deb.debian_version("0.10.0", 2)]):
        words = ["dpkg", "--compare-versions", lower, "lt", higher]
        assert subprocess.run(words, check=False).returncode == 0, (lower, higher)


def test_the_version_is_that_of_the_sources() -> None:
    from ulnet import __version__

    assert deb.read_version() == __version__


def test_each_command_is_linked_and_each_name_in_the_scripts_is_the_packages() -> None:
    rules = (DEBIAN / "rules").read_text()
    assert re.findall(r"^COMMANDS := (.+)$", rules, re.MULTILINE) == ["ulnet lnetctl lnetd lst"]
    control = (DEBIAN / "control").read_text()
    assert "Package: ulnet\n" in control and "${ulnet:Python}" in control
    for script in ("ulnet.postinst", "ulnet.prerm"):
        text = (DEBIAN / script).read_text()
        assert "#DEBHELPER#\n" in text
        assert subprocess.run(["sh", "-n", DEBIAN / script], check=False).returncode == 0


def test_the_units_user_is_the_one_that_is_made() -> None:
    user = (ROOT / "packaging/systemd/lnetd.sysusers").read_text().splitlines()[-1].split()[1]
    unit = (ROOT / "packaging/systemd/lnetd.service").read_text()
    assert f"\nUser={user}\nGroup={user}\n" in unit


def test_tools_that_are_missing_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda program, path=None: None)
    assert deb.main([]) == 1
    assert (
        "debhelper, dpkg-dev missing here (Debian: apt-get install debhelper dpkg-dev)"
        in capsys.readouterr().err
    )
    assert install_trial.main([]) == 1
    assert "debootstrap, iproute2, systemd-container" in capsys.readouterr().err


def test_a_wheel_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("shutil.which", lambda program, path=None: f"/usr/bin/{program}")
    assert deb.main(["--wheel", str(tmp_path / "x.whl")]) == 1
    assert "x.whl: there is no such wheel; `make wheels` builds them" in capsys.readouterr().err


def test_the_page_of_installation_names_files_that_the_wheel_has() -> None:
    page = (ROOT / "docs/install.md").read_text()
    named = set(re.findall(r"/opt/ulnet/(share/ulnet/[\w.]+\w)", page))
    assert named == {"share/ulnet/lnetd.sysusers", "share/ulnet/lnetd.service", "share/ulnet/lnet.conf"}
    places = {place for _, place in installed_files(ROOT)}
    assert named <= places
    folders = set(re.findall(r"/opt/ulnet/(share/[\w-]+) ", page))
    assert folders == {"/".join(place.split("/")[:2]) for place in places} - {"share/ulnet"}
    assert len(re.findall(r"^```sh$", page, re.MULTILINE)) == 4  # install_trial.follow_page runs these

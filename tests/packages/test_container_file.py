"""The container file: it copies all that a wheel is made of, and starts what the wheel has."""

from __future__ import annotations

import json
import re

import compiled
from support.shared import ROOT

TEXT = (ROOT / "packaging/Containerfile").read_text()
STAGES = re.split(r"^FROM .*$", TEXT, flags=re.MULTILINE)[1:]


def test_all_that_a_wheel_is_made_of_is_copied_to_its_place() -> None:
    copied = {}
    for line in re.findall(r"^COPY (?!--from)(.+)$", STAGES[0], re.MULTILINE):
        *sources, target = line.split()
        for source in sources:
            copied[source] = f"{target}{source}" if target.endswith("/") else target
    assert copied == {name: f"/source/{name}" for name in compiled.INPUTS}


def test_what_it_starts_is_a_command_of_ulnet_with_the_file_that_is_there() -> None:
    start, words = (
        json.loads(re.findall(rf"^{name} (.+)$", TEXT, re.MULTILINE)[0]) for name in ("ENTRYPOINT", "CMD")
    )
    assert start == ["lnetd"] and 'lnetd = "ulnet.cli.lnetd:main"' in (ROOT / "pyproject.toml").read_text()
    assert f"COPY packaging/lnet.conf {words[-1]}" in STAGES[1] and (ROOT / "packaging/lnet.conf").is_file()

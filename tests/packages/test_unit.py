"""The systemd units: what they leave to their programs, judged by systemd itself."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

UNITS = Path(__file__).parents[2] / "packaging/systemd"


@pytest.mark.parametrize(
    ("name", "most"),
    [("lnetd", 2.0), ("ulnet-exporter", 4.5), ("ulnet-record", 4.5)],  # root, for the kernel's lnetctl
)
def test_units_are_confined(name: str, most: float) -> None:
    told = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(UNITS / f"{name}.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(rf"exposure level for {name}.service: ([0-9.]+)", told.stdout)
    assert found is not None, told
    assert float(found[1]) <= most


@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda unit: unit.name)
def test_units_have_no_words_that_systemd_does_not_know(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name
    copy.write_text(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text()))
    told = subprocess.run(
        ["systemd-analyze", "verify", "--man=false", str(copy)], capture_output=True, text=True, check=False
    )
    assert unit.name not in told.stderr, told.stderr

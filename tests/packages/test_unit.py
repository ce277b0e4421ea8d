"""The systemd unit: what it leaves to lnetd, judged by systemd itself."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

UNIT = Path(__file__).parents[2] / "packaging/systemd/lnetd.service"


def test_the_unit_is_confined() -> None:
    told = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(UNIT)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"exposure level for lnetd.service: ([0-9.]+)", told.stdout)
    assert found is not None, told
    assert float(found[1]) <= 2.0


def test_the_unit_has_no_words_that_systemd_does_not_know(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("ExecStart=lnetd", "ExecStart=/bin/true"))
    told = subprocess.run(
        ["systemd-analyze", "verify", "--man=false", str(unit)], capture_output=True, text=True, check=False
    )
    assert "lnetd.service" not in told.stderr, told.stderr

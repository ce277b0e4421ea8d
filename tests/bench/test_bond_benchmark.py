"""The comparison of Multi-Rail with bonding runs, and fills its place on its page."""

from __future__ import annotations

from pathlib import Path

import pytest

import bonds
import failover
import rails


def test_it_measures_streams_and_a_fault(
    namespaces_work: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rails, "WARMUP", 0.3)
    monkeypatch.setattr(failover, "BEFORE", 0.5)
    monkeypatch.setattr(failover, "AFTER", 0.3)
    monkeypatch.setattr(bonds, "SCENES", (rails.Scene((400, 400)),))
    streams = {name: bonds.STREAMS[name] for name in ("ulnet", "bond:weights")}
    monkeypatch.setattr(bonds, "STREAMS", streams)
    text = bonds.report(1, 0.7, lambda line: None)
    rows = [line.split("|")[2].strip() for line in text.splitlines() if line.startswith("| 2 × 400")]
    assert rows == list(streams.values())
    assert "| bond, standby |" in text


def test_the_page_has_a_place_for_it() -> None:
    page = bonds.PAGE.read_text()
    assert page.index(bonds.BEGIN) < page.index(bonds.END)

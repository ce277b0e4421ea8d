"""The comparison of Multi-Rail with bonding runs, and fills its place on its page."""

from __future__ import annotations

import pytest

import bond_setup
import bonds
import failover
import rails
from support.netns import Cluster


def test_it_measures_streams_and_faults(namespaces_work: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rails, "WARMUP", 0.3)
    monkeypatch.setattr(failover, "BEFORE", 0.5)
    monkeypatch.setattr(bonds, "AFTER", 0.3)
    monkeypatch.setattr(bonds, "SCENES", {bonds.EQUAL: ("ulnet", "bond:weights")})
    monkeypatch.setattr(bonds, "FAULT_SCENES", bonds.FAULT_SCENES[:1])
    text = bonds.report(1, 0.7, lambda line: None)
    rows = [line.split("|")[2].strip() for line in text.splitlines() if line.startswith("| 2 × 400")]
    assert rows == ["Multi-Rail", "bond, static weights"]
    assert "| link down, near | bond, standby |" in text
    assert "| lookups at the data server a connection | – |" in text


@pytest.mark.requirement("BOND-modes", "BOND-health")
@pytest.mark.parametrize("name", ["near", "far", "hole"])
def test_a_rail_that_fails_under_a_standby_bond_costs_the_program_nothing(
    two_hosts: Cluster, name: str
) -> None:
    (scene,) = (scene for scene in failover.SCENES if scene.name == name)
    for rail in range(2):
        two_hosts.shape(rail, f"{failover.RATE}mbit")
    run = failover._Run(two_hosts, scene, "bond", 1.0, 1.0).outcome()
    assert (run.reported, run.lost) == (0, 0)
    assert run.on_default[0][1] is False  # it went to the backup
    assert run.answers(run.faulted, run.faulted + scene.hold)


@pytest.mark.requirement("BOND-bds")
def test_data_servers_are_asked_once_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bond_setup, "MESSAGES", 5)
    few = bond_setup.bonding()
    monkeypatch.setattr(bond_setup, "MESSAGES", 50)
    many = bond_setup.bonding()
    assert few.lookups == many.lookups
    assert few.lookups is not None
    assert 0 < few.lookups <= 1
    assert many.registrations == 1
    assert bond_setup.multi_rail().lines < many.lines


def test_the_page_has_a_place_for_it() -> None:
    page = bonds.PAGE.read_text()
    assert page.index(bonds.BEGIN) < page.index(bonds.END)

"""Random discoveries: nodes meet while their NIs, settings, peers and links change; in the end all know all.

`ulnet sim --recipe discovery --seed N` plays one of them again.
"""

from __future__ import annotations

import pytest

from ulnet.control.discovery import merging
from ulnet.sim import Simulation
from ulnet.sim.discovering import RECIPE, discovery_in_order, knows
from ulnet.sim.random_run import find_failure, replay

ONCE_BROKEN = {
    1907: "a node that had switched discovery off and talked to itself asked itself for ever",
    989: "a peer that was queued again in its last turn had another one",
    68721: "a peer that had lost its power was not found in three questions: each died with another rail",
}
SHORT, LONG, CHUNK = 2_000, 100_000, 250


def all_well(seeds: range) -> None:
    found = find_failure(RECIPE, seeds)
    assert found is None, f"ulnet sim --recipe discovery --seed {found[0]}: {found[2]}"


@pytest.mark.requirement("HLD-fsm")
@pytest.mark.parametrize("start", range(0, SHORT, CHUNK))
def test_random_discoveries_end_well(start: int) -> None:
    all_well(range(start, start + CHUNK))


@pytest.mark.pure
@pytest.mark.parametrize("start", range(0, SHORT, CHUNK))
def test_so_they_do_where_each_nid_is_merged_in_a_turn_of_its_own(
    start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "_AT_ONCE", 1)
    all_well(range(start, start + CHUNK))


@pytest.mark.long
@pytest.mark.requirement("HLD-fsm")
@pytest.mark.parametrize("start", range(SHORT, LONG, CHUNK))
def test_a_hundred_thousand_random_discoveries_end_well(start: int) -> None:
    all_well(range(start, start + CHUNK))


@pytest.mark.parametrize("seed", ONCE_BROKEN, ids=str)
def test_what_was_broken_once_stays_mended(seed: int) -> None:
    outcome = replay(RECIPE, seed, thorough=True)
    assert outcome.ok, outcome.failure


def test_a_node_without_discovery_may_talk_to_itself() -> None:
    sim = Simulation(1)
    sim.properties.append(discovery_in_order)
    node = sim.node("a", "10.0.0.1@tcp", "10.1.0.1@tcp1")
    node.attach(30)
    puts = [node.put("10.1.0.1@tcp1", 30, data=b"x")]
    sim.run_until_quiet()
    node.core.set_discovery(0)
    puts += [node.put(nid, 30, data=b"x") for nid in node.nids]
    sim.run_until_quiet(10.0)
    assert all(put.ok for put in puts)


def test_the_judges_see_what_is_wrong() -> None:
    """A property that cannot fail would show nothing."""
    sim = Simulation(2)
    a, b = sim.node("a", "10.0.0.1@tcp"), sim.node("b", "10.0.0.2@tcp", "10.1.0.2@tcp1")
    assert "in 1 peers" in knows(a, b)
    a.call(a.node.discover(b.nid))
    sim.run_until_quiet()
    assert not knows(a, b)
    peer = a.core.peers.find(b.nid)
    assert peer is not None
    assert not discovery_in_order(a)
    peer.settled = False
    assert "settled" in discovery_in_order(a)
    peer.mark(0x40)
    assert "nobody works on it" in discovery_in_order(a)
    peer.mark(0x200)
    assert "ping and its flags" in discovery_in_order(a)
    peer.mark(remove=0x240)
    peer.parked.append(None)  # type: ignore[arg-type]
    assert "wait for nothing" in discovery_in_order(a)
    peer.parked.clear()
    a.core.peers.delete(peer.primary_nid, [b.nids[1]])
    assert "in 2 peers" in knows(a, b)

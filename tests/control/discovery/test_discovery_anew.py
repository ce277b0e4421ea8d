"""Peers that have themselves made anew: what one may do, and what is kept of it, does not begin again."""

from __future__ import annotations

import gc

import pytest

from control.discovery.test_discovery_hostile import answer, info, push
from support.fabric import Fabric
from ulnet.control.instance import LNet
from ulnet.core.peer import PeerNi
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.ping import NiEntry, PingInfo

A, FOE, ELSE = (Nid.parse(name) for name in ("10.0.0.1@tcp", "10.0.0.66@tcp", "10.0.0.99@tcp"))


@pytest.fixture
def fabric() -> Fabric:
    return Fabric()


def far(count: int, at: int = 0) -> list[Nid]:
    return [Nid.parse(f"10.{8 + at}.{n >> 8}.{n & 255}@tcp8") for n in range(1, count + 1)]


def tells(fabric: Fabric, foe: LNet, sequence: int, nids: list[Nid]) -> None:
    """It pushes a list, and answers with it."""
    answer(foe, info(sequence, FOE, *nids))
    push(foe, A, info(sequence, FOE, *nids))
    fabric.run()


def made_anew(fabric: Fabric, foe: LNet, sequence: int) -> None:
    """A push says that its node does not discover any more."""
    push(foe, A, PingInfo(0x0E, LNET_PID, sequence, [NiEntry(FOE)]).pack())
    fabric.run()


def test_nothing_is_kept_of_long_lists_of_peers_that_left(fabric: Fabric) -> None:
    """The last 64 were kept whole, and counted for no bound: 256,000 NIDs of one address."""
    a, foe = fabric.node(str(A), discovery=True), fabric.node(str(FOE))
    gc.collect()
    gc.disable()
    try:
        for turn in range(6):
            tells(fabric, foe, 10 * turn + 2, far(600, turn))
            found = a.peers.find(FOE)
            assert found is not None
            assert len(found.members) == 601
            del found
            made_anew(fabric, foe, 10 * turn + 3)
            fabric.clock.now += 20
        fabric.all_peer_nis.clear()
        kept = sum(type(one) is PeerNi and one.nid.net == far(1)[0].net for one in gc.get_objects())
    finally:
        gc.enable()
    assert kept <= 1200


@pytest.mark.parametrize("leaves", [True, False], ids=["leaves", "lists-less"])
def test_who_listed_many_nids_is_forgotten_with_them(fabric: Fabric, leaves: bool) -> None:
    """Each peer that ever had more than 256 was kept for good, 61 KiB each."""
    a, foe = fabric.node(str(A), discovery=True), fabric.node(str(FOE))
    tells(fabric, foe, 2, far(300))
    assert len(a.peers._many) == 1
    if leaves:
        made_anew(fabric, foe, 3)
    else:
        tells(fabric, foe, 3, far(100))
    assert not a.peers._many

"""Peers that never answered are forgotten; all others stay."""

from __future__ import annotations

import gc

import pytest

from support.fabric import Fabric
from ulnet.control.discovery.ageing import FORGOTTEN_AFTER, MOST
from ulnet.control.naming import name_peer
from ulnet.core import peer_table
from ulnet.core.md import MdOption
from ulnet.core.peer import Peer
from ulnet.core.routing.table import RouteTable
from ulnet.nid import Net, Nid
from ulnet.wire.lnet import PING_MATCH_BITS, PING_PORTAL

B, TYPO, NAMED, GATEWAY, OWN = (Nid.parse(f"10.0.0.{n}@tcp") for n in (2, 33, 44, 55, 66))


def ping(fabric, core, *nids):
    for nid in nids:
        core.get(
            core.memory.md_bind(bytearray(64), threshold=2, options=MdOption.TRUNCATE),
            nid,
            PING_PORTAL,
            PING_MATCH_BITS,
        )
    fabric.run()


def known(core):
    return {str(peer.primary_nid) for peer in core.peers} - {"0@lo"}


def later(fabric, seconds):
    fabric.clock.now += seconds
    fabric.run()


def test_a_peer_that_never_answered_is_forgotten():
    fabric = Fabric()
    a = fabric.node("10.0.0.1@tcp", ageing=True)
    fabric.node(str(B))
    ping(fabric, a, TYPO, B)
    later(fabric, FORGOTTEN_AFTER - 1.0)
    assert known(a) == {str(TYPO), str(B)}
    later(fabric, 2.0)
    assert known(a) == {str(B)}
    ping(fabric, a, TYPO)
    later(fabric, FORGOTTEN_AFTER / 2)
    fabric.node(str(TYPO))
    ping(fabric, a, TYPO)
    later(fabric, FORGOTTEN_AFTER)
    assert known(a) == {str(B), str(TYPO)}


def test_what_is_named_configured_or_needed_is_not_forgotten():
    fabric = Fabric()
    a = fabric.node("10.0.0.1@tcp", ageing=True)
    ping(fabric, a, NAMED, OWN)
    name_peer(a, [NAMED])
    a.peers.add(OWN)
    a.gateways.add(Net.parse("tcp9"), GATEWAY, 1, 0)
    later(fabric, 3 * FORGOTTEN_AFTER)
    assert known(a) == {str(NAMED), str(OWN), str(GATEWAY)}


def test_who_is_in_use_is_looked_at_again():
    fabric = Fabric()
    a = fabric.node("10.0.0.1@tcp", ageing=True)
    ping(fabric, a, TYPO)
    pni = a.peers.find_ni(TYPO)
    pni.refs += 1
    later(fabric, FORGOTTEN_AFTER + 1.0)
    assert known(a) == {str(TYPO)}
    pni.refs -= 1
    later(fabric, FORGOTTEN_AFTER + 1.0)
    assert known(a) == set()
    fabric.assert_conserved()


def test_strangers_who_made_room_for_others_are_not_kept_until_their_time(monkeypatch):
    """Ever new sources: 300 s of them were kept, 65,536 though they may be in all."""
    monkeypatch.setattr(peer_table, "MAX_UNCONFIGURED", 50)
    fabric = Fabric()
    a = fabric.node("10.0.0.1@tcp", ageing=True)
    fabric.all_peer_nis.clear()
    gc.collect()
    before = sum(type(one) is Peer for one in gc.get_objects())
    gc.disable()
    try:
        for number in range(400):
            a.peers.learn(Nid.of(B.net, 1000 + number))
            fabric.all_peer_nis.clear()
        after = sum(type(one) is Peer for one in gc.get_objects())
    finally:
        gc.enable()
    assert len(a.peers) <= 50
    assert after - before < 150
    later(fabric, FORGOTTEN_AFTER + 1.0)
    assert known(a) == set()


def test_a_node_that_shuts_down_waits_for_nothing():
    fabric = Fabric()
    a = fabric.node("10.0.0.1@tcp", ageing=True)
    ping(fabric, a, TYPO)
    assert a.next_deadline() is not None
    a.shutdown()
    assert a.next_deadline() is None


def test_peers_that_came_together_are_forgotten_in_several_turns():
    """Who invents sources decides how many there are: 5,000 were forgotten in one turn of the loop."""
    fabric = Fabric()
    a = fabric.node("10.0.0.1@tcp", ageing=True)
    count = 2 * MOST + 10
    for number in range(count):
        a.peers.learn(Nid.of(B.net, 1000 + number))
    fabric.clock.now += FORGOTTEN_AFTER + 1.0
    left = []
    while len(known(a)) > 0:
        assert a.next_deadline() <= fabric.clock.now  # at once
        a.tick(fabric.clock.now)
        left.append(len(known(a)))
    assert left == [MOST + 10, 10, 0]
    fabric.assert_conserved()


@pytest.mark.pure
def test_whether_a_peer_is_needed_costs_no_look_at_all_routes(monkeypatch):
    """It is asked for each peer that may go and for each push: 0.6 ms beside 4,096 routes."""
    fabric = Fabric()
    a = fabric.node("10.0.0.1@tcp", ageing=True)
    for number in range(9):
        a.gateways.add(Net.parse(f"tcp{number + 1}"), GATEWAY, 1, 0)
    a.peers.learn(TYPO)
    gateway, other = a.peers.find(GATEWAY), a.peers.find(TYPO)
    monkeypatch.setattr(RouteTable, "__iter__", lambda _: pytest.fail("all routes were looked at"))
    assert "--net tcp1 --gateway 10.0.0.55@tcp'" in a.gateways.needed_for(gateway)
    assert a.gateways.needed_for(other) == ""
    assert a.gateways.is_gateway(gateway)
    assert not a.gateways.is_gateway(other)

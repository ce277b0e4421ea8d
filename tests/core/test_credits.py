"""Transmit credits of NIs and peer NIs, and the queues behind them (spec selection.md §8)."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fabric import Fabric, Recorder
from ulnet.core.md import MdOption
from ulnet.core.status import LNetError
from ulnet.core.tunables import NetTunables
from ulnet.nid import Nid

B, C = Nid.parse("10.0.0.2@tcp"), Nid.parse("10.0.0.3@tcp")
TARGET = MdOption.OP_PUT | MdOption.TRUNCATE


def sink(core, order, size=1 << 16):
    me = core.memory.me_attach(5, match_bits=7)
    core.memory.md_attach(me, bytearray(size), lambda event: order.append(event.hdr_data), options=TARGET)


def put(core, target, number, size=8):
    core.put(core.memory.md_bind(bytes(size), None, threshold=1), target, 5, 7, ack=False, hdr_data=number)


@pytest.mark.requirement("dbg-060")
def test_peer_credits_bound_what_is_in_flight_and_keep_order():
    fabric = Fabric()
    a, b = fabric.node("10.0.0.1@tcp", tunables=NetTunables(peer_credits=2, credits=8)), fabric.node(str(B))
    order: list[int] = []
    sink(b, order)
    for number in range(10):
        put(a, B, number)
    pni = a.peers.find_ni(B)
    assert len(fabric.wire) == 2
    assert (pni.tx_credits, pni.min_tx_credits, pni.max_tx_credits) == (-8, -8, 2)
    assert pni.tx_queued_bytes == 10 * (8 + 72)
    fabric.run()
    assert order == list(range(10))
    assert pni.min_tx_credits == -8
    fabric.assert_conserved()


@pytest.mark.requirement("dbg-030")
def test_ni_credits_are_shared_by_its_peers():
    fabric = Fabric()
    a = fabric.node("10.0.0.1@tcp", tunables=NetTunables(peer_credits=2, credits=3))
    b, c = fabric.node(str(B)), fabric.node(str(C))
    order: list[int] = []
    sink(b, order)
    sink(c, order)
    for number in range(3):
        put(a, B, number)
        put(a, C, 100 + number)
    (ni,) = (ni for nid, ni in a.nis.items() if not nid.is_lo)
    assert len(fabric.wire) == 3
    assert ni.tx_credits == -1
    assert len(ni.tx_queues[0].waiting) == 1
    fabric.run()
    assert sorted(order) == [0, 1, 2, 100, 101, 102]
    assert [n for n in order if n < 100] == [0, 1, 2]
    fabric.assert_conserved()


def test_deleting_an_ni_fails_what_waits_on_it():
    fabric = Fabric()
    a, b = fabric.node("10.0.0.1@tcp", tunables=NetTunables(peer_credits=2, credits=3)), fabric.node(str(B))
    sink(b, [])
    results = Recorder()
    for _ in range(8):
        a.put(a.memory.md_bind(b"1", results, threshold=1), B, 5, 7, ack=False)
    a.del_ni(Nid.parse("10.0.0.1@tcp"))
    fabric.run()
    assert len(results) == 8
    assert all(event.unlinked for event in results)
    ends = [event.status for event in results]
    assert ends.count(-errno.ENETDOWN) == 2  # the driver had them; the others found no other way
    assert ends.count(-errno.EHOSTUNREACH) == 6
    fabric.assert_conserved()
    put(a, B, 1)
    fabric.run()
    fabric.assert_conserved()


def test_shutdown_finishes_everything():
    fabric = Fabric()
    a, b = fabric.node("10.0.0.1@tcp", tunables=NetTunables(peer_credits=1, credits=2)), fabric.node(str(B))
    sink(b, [])
    results = Recorder()
    for _ in range(5):
        a.put(a.memory.md_bind(b"1", results, threshold=2), B, 5, 7)
    a.shutdown()
    assert sum(event.unlinked for event in results) == 5
    assert not a.memory.mds
    assert a.stats.msgs_alloc == 0
    with pytest.raises(LNetError) as refused:
        a.put(a.memory.md_bind(b"1", None, threshold=1), B, 5, 7)
    assert refused.value.errno == errno.ESHUTDOWN


@pytest.mark.parametrize(
    ("tunables", "words"),
    [
        (NetTunables(credits=0), "must be at least 1"),
        (NetTunables(peer_credits=0), "must be at least 1"),
        (NetTunables(peer_credits=9, credits=8), "exceed credits"),
    ],
)
def test_bad_tunables_change_nothing(tunables, words):
    fabric = Fabric()
    a = fabric.node()
    with pytest.raises(LNetError, match=words):
        a.add_ni(B.net, B, tunables=tunables)
    assert len(a.nets) == 1
    assert B not in fabric.nis


@given(
    credits=st.integers(1, 4),
    peer_credits=st.integers(1, 4),
    script=st.lists(
        st.tuples(st.sampled_from([B, C]), st.integers(0, 3), st.booleans()), min_size=1, max_size=40
    ),
)
def test_whatever_fails_credits_come_back_and_each_message_ends_once(credits, peer_credits, script):
    fabric = Fabric()
    tunables = NetTunables(peer_credits=min(peer_credits, credits), credits=credits)
    a, b, c = fabric.node("10.0.0.1@tcp", tunables=tunables), fabric.node(str(B)), fabric.node(str(C))
    sink(b, [])
    sink(c, [])
    ended: list[int] = []
    lost = set()
    for number, (target, steps, lose) in enumerate(script):
        if lose:
            lost.add(number)

        def done(event, number=number):
            if event.unlinked:
                ended.append(number)
            assert (event.status == 0) == (number not in lost)

        a.put(a.memory.md_bind(b"12345678", done, threshold=1), target, 5, 7, ack=False, hdr_data=number)
        for _ in range(steps):
            fabric.step(lambda msg: msg.hdr.hdr_data in lost)
    for _ in range(200):
        fabric.step(lambda msg: msg.hdr.hdr_data in lost)
    assert sorted(ended) == list(range(len(script)))
    fabric.assert_conserved()

"""Transmit credits of NIs and peer NIs, and the queues behind them (spec selection.md §8)."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.test_core_regressions import arrive, attach
from support.fabric import Fabric, Recorder
from ulnet.core.md import MdOption
from ulnet.core.status import HealthStatus, LNetError
from ulnet.core.tunables import NetTunables
from ulnet.nid import Nid
from ulnet.wire.lnet import MsgType

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


# Answers ----------------------------------------------------------------------------------------------


def unread(fabric, tunables=None):
    """A node whose answers 40 strangers have asked for, 20 each, and do not read: with their NIDs."""
    b = fabric.node(str(B), tunables=tunables)
    attach(b, bytearray(8), None, options=TARGET | MdOption.OP_GET | MdOption.MANAGE_REMOTE)
    foes = [Nid.of(B.net, 1000 + n) for n in range(40)]
    for number in range(20):
        for foe in foes:
            wmd = number.to_bytes(16, "little")
            assert arrive(b, B, kind=MsgType.GET, length=4, wmd=wmd, src=foe) == 0
    return b, foes


def test_who_reads_no_answers_holds_up_neither_messages_nor_answers_to_others():
    """32 of them had all credits of the NI until their answers timed out."""
    fabric = Fabric()
    b, foes = unread(fabric)
    ni = b.nis[B]
    assert len(fabric.wire) == len(foes) * 8
    assert ni.tx_credits == ni.max_tx_credits // 2
    put(b, C, 1)
    assert fabric.wire[-1][1].hdr.type == MsgType.PUT
    assert arrive(b, B, kind=MsgType.GET, length=4, wmd=b"1" * 16, src=C) == 0
    assert (fabric.wire[-1][1].hdr.type, fabric.wire[-1][1].next_nid) == (MsgType.REPLY, C)
    came: dict[Nid, list[int]] = {}
    while fabric.wire:
        msg = fabric.wire.popleft()[1]
        came.setdefault(msg.next_nid, []).append(int.from_bytes(msg.wmd, "little"))
        b.completed([msg])
    assert [came[foe] for foe in foes] == [list(range(20))] * 40
    fabric.assert_conserved()


def test_answers_that_wait_for_credits_stay_in_order_and_go_in_their_turn():
    """Behind what this node itself sends; with half of the credits, the others need none."""
    fabric = Fabric()
    b = fabric.node(str(B), tunables=NetTunables(peer_credits=8, credits=8))
    attach(b, bytearray(8), None, options=TARGET | MdOption.OP_GET | MdOption.MANAGE_REMOTE)
    ni = b.nis[B]
    for number in range(8):
        put(b, C, number)
    foes = [Nid.of(B.net, 1000 + n) for n in range(6)]
    for foe in foes:
        arrive(b, B, kind=MsgType.GET, length=4, wmd=b"1" * 16, src=foe)
    put(b, foes[0], 9)
    assert (len(fabric.wire), ni.tx_credits) == (8, -7)
    for gone in range(1, 5):
        b.completed([fabric.wire.popleft()[1]])
        assert len(fabric.wire) == 8 if gone < 4 else 10
    assert [msg.next_nid for _, msg in list(fabric.wire)[4:]] == foes
    assert len(ni.tx_queues[0].waiting) == 1
    b.completed([fabric.wire.popleft()[1]])
    assert fabric.wire[-1][1].hdr.hdr_data == 9
    while fabric.wire:
        b.completed([fabric.wire.popleft()[1]])
    fabric.assert_conserved()


def test_answers_without_credits_may_lose_and_find_their_connections():
    fabric = Fabric()
    b, _ = unread(fabric)
    ni = b.nis[B]
    msgs = [msg for _, msg in fabric.wire]
    b.awaits_connection(msgs)
    assert ni.tx_credits == ni.max_tx_credits
    b.has_connection(msgs[:200])
    assert ni.tx_credits == ni.max_tx_credits // 2
    while fabric.wire:
        b.completed([fabric.wire.pop()[1]], HealthStatus.REMOTE_TIMEOUT, errno.ETIMEDOUT, "nothing was read")
        assert ni.tx_credits <= ni.max_tx_credits
    fabric.run()
    fabric.assert_conserved()


def test_an_answer_that_needs_no_credit_goes_when_what_was_before_it_gives_up():
    fabric = Fabric()
    b = fabric.node(str(B), tunables=NetTunables(peer_credits=4, credits=8))
    attach(b, bytearray(8), None, options=TARGET | MdOption.OP_GET | MdOption.MANAGE_REMOTE)
    foes = [Nid.of(B.net, 1000 + n) for n in range(5)]
    for foe in foes[:4]:
        arrive(b, B, kind=MsgType.GET, length=4, wmd=b"1" * 16, src=foe)
    for number in range(4):
        put(b, C, number)
    first = b.memory.md_bind(b"x", None, threshold=1)
    b.put(first, foes[4], 5, 7, ack=False)
    arrive(b, B, kind=MsgType.GET, length=4, wmd=b"1" * 16, src=foes[4])
    assert (len(fabric.wire), len(b.nis[B].tx_queues[0].waiting)) == (8, 2)
    b.memory.md_unlink(first)
    fabric.clock.now += 2
    for _ in range(4):
        b.tick(fabric.clock.now)
    assert (len(fabric.wire), fabric.wire[-1][1].next_nid) == (9, foes[4])
    while fabric.wire:
        b.completed([fabric.wire.popleft()[1]])
    fabric.assert_conserved()


def test_an_answer_that_overtakes_those_whose_turn_is_due_takes_no_credit_for_good():
    """Where others wait, it must have a credit to go, and needs none once it has gone."""
    fabric = Fabric()
    b = fabric.node(str(B), tunables=NetTunables(peer_credits=8, credits=8))
    attach(b, bytearray(8), None, options=TARGET | MdOption.OP_GET | MdOption.MANAGE_REMOTE)
    ni, far = b.nis[B], Nid.parse("10.0.0.9@tcp")
    passed_on = ni.lnd.send

    def send(to, msgs):
        passed_on(to, msgs)
        if msgs[0].next_nid == far:
            b.awaits_connection(msgs)

    ni.lnd.send = send

    def ask(host):
        arrive(b, B, kind=MsgType.GET, length=4, wmd=b"1" * 16, src=Nid.of(B.net, host))

    for number in range(4):
        ask(1000 + number)  # who reads no answers
    for number in range(4):
        put(b, C, number)
    near = [msg for _, msg in list(fabric.wire)[4:]]
    for number in range(3):
        put(b, far, number)
    for msg in near:
        fabric.wire.remove((next(core for core, one in fabric.wire if one is msg), msg))
    b.completed(near[:2])  # two of those that wait have their turn, and no connection
    ask(2000)
    assert ni.tx_queues[0].answers == 5
    b.tick(fabric.clock.now)
    b.completed(near[2:])
    while fabric.wire:
        _, msg = fabric.wire.popleft()
        if msg.unconnected:
            b.has_connection([msg])
        b.completed([msg])
        b.tick(fabric.clock.now)
    assert (ni.tx_credits, ni.tx_queues[0].credits, ni.tx_queues[0].answers) == (8, 8, 0)

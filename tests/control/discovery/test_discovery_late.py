"""Answers to pings that come when their NID has another peer by then (docs/security.md)."""

from __future__ import annotations

import pytest

from control.discovery.test_discovery_elsewhere import opened_to, sent_to, settle
from control.discovery.test_discovery_hostile import answer, attach, info, peer, push, put
from control.discovery.test_discovery_takeover import A
from support.fabric import Fabric, Recorder
from ulnet.control.instance import LNet
from ulnet.core.event import Event, EventKind
from ulnet.core.md import TRUNCATE
from ulnet.core.msg import Msg
from ulnet.core.ni import NI
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.lnet import PING_MATCH_BITS, PING_PORTAL, MsgType
from ulnet.wire.ping import NiEntry, NiStatus, PingInfo

X, Y, VICTIM, SECOND = (
    Nid.parse(nid) for nid in ("10.0.0.66@tcp", "10.0.0.67@tcp", "10.0.0.7@tcp", "10.0.0.8@tcp")
)


@pytest.fixture
def fabric() -> Fabric:
    return Fabric()


def lie(sequence: int, *nids: Nid) -> bytes:
    """What the foe tells: the victim's NIDs are down, so that messages leave by its own."""
    down = (VICTIM, SECOND)
    entries = [NiEntry(nid, NiStatus.DOWN if nid in down else NiStatus.UP) for nid in nids]
    return PingInfo(0x1E, LNET_PID, sequence, entries).pack()


def user_ping(a: LNet, nid: Nid) -> None:
    """Ping a NID as a program does that tells discovery of the answer."""

    def answered(event: Event) -> None:
        if event.kind is EventKind.REPLY and not event.status:
            a.discovery.told(nid, PingInfo.unpack(event.data), event.source, event.sender)

    md = a.memory.md_bind(bytearray(4096), answered, threshold=2, options=TRUNCATE, timeout=60)
    a.get(md, nid, PING_PORTAL, PING_MATCH_BITS)


def hold_pings(fabric: Fabric) -> list[tuple[NI, Msg]]:
    """All that can arrive does, but pings of X, which are answered."""
    held: list[tuple[NI, Msg]] = []
    for _ in range(4000):
        for core in fabric.cores:
            core.tick(fabric.clock.now)
        for one in list(fabric.wire):
            hdr = one[1].hdr
            if one[1].next_nid == X and hdr.type == MsgType.GET and hdr.portal == PING_PORTAL:
                fabric.wire.remove(one)
                held.append(one)
        if not fabric.step() and not any(core.state.work_pending for core in fabric.cores):
            break
    return held


@pytest.mark.parametrize("how", ["discovery", "a user's ping"])
def test_an_answer_by_a_nid_that_left_its_peer_is_not_that_peers(fabric: Fabric, how: str) -> None:
    """A foe of two addresses answers by one that was moved away since: the victim had that peer by then.

    The victim got 2 of 8 messages, and the foe wrote into memory that was open to the victim alone.
    """
    a, x, y = fabric.node(str(A), discovery=True), fabric.node(str(X)), fabric.node(str(Y))
    for core in (a, x, y):
        attach(core)
    answer(y, info(1, Y))
    put(a, Y)
    fabric.run()
    answer(x, lie(5, VICTIM, X, Y))
    put(a, X)
    fabric.run()
    if how == "discovery":
        push(x, A, bytes(20))
    else:
        user_ping(a, VICTIM)
    held = hold_pings(fabric)
    assert held
    answer(y, lie(6, Y, X))
    push(y, A, lie(6, Y, X))
    held += hold_pings(fabric)
    assert sorted(peer(a, X).nids()) == [X, Y]
    victim = fabric.node(str(VICTIM), str(SECOND), discovery=True)
    got: Recorder = attach(victim)
    for _ in range(2):
        put(victim, A)
        held += hold_pings(fabric)
        settle(fabric, 2)
    claim = lie(0xFFFFFF00, Y, X, VICTIM, SECOND)
    for foe in (x, y):
        answer(foe, claim)
    push(y, A, claim)
    held += hold_pings(fabric)
    fabric.wire.extend(held)
    settle(fabric)
    assert sent_to(fabric, a, VICTIM, got) == 8
    assert sent_to(fabric, a, SECOND, got) == 8
    assert opened_to(fabric, a, y, VICTIM) == bytes(8)
    assert sorted(peer(a, VICTIM).nids()) == [VICTIM, SECOND]
    fabric.assert_conserved()

"""A request that finds no memory: between nodes with a duplicate guard its initiator is told at once."""

from __future__ import annotations

import errno

import pytest

from support.fabric import Fabric, Recorder
from ulnet.core.event import EventKind
from ulnet.core.guard.identity import tag_of
from ulnet.core.md import OP_GET, OP_PUT, TRUNCATE
from ulnet.core.refusals import is_refusal
from ulnet.core.states import PeerNiState
from ulnet.nid import Nid

A, B = Nid.parse("10.0.0.1@tcp"), Nid.parse("10.0.0.2@tcp")
PORTAL, BITS = 30, 1


class Two:
    """`a` asks, `b` has eight bytes to write and read."""

    def __init__(self, *, kernel: bool = False) -> None:
        self.fabric = Fabric()
        self.a, self.b = self.fabric.node(str(A)), self.fabric.node(str(B))
        self.events = Recorder()
        me = self.b.memory.me_attach(PORTAL, match_bits=BITS)
        self.b.memory.md_attach(me, bytearray(8), None, options=OP_PUT | OP_GET)
        self.a.peers.add(B, [])
        peer = self.b.peers.add(A, [])
        if not kernel:
            peer.guard = tag_of(self.a.state.cookie)

    def put(self, data: bytes, portal: int = PORTAL, bits: int = BITS, *, threshold: int = 2) -> None:
        self.a.put(self.a.memory.md_bind(data, self.events, threshold=threshold), B, portal, bits)
        self.fabric.run()

    def get(self, size: int, portal: int = PORTAL, bits: int = BITS) -> None:
        self.a.get(self.a.memory.md_bind(bytearray(size), self.events, threshold=2), B, portal, bits)
        self.fabric.run()


@pytest.mark.parametrize("method", ["put", "get"])
@pytest.mark.parametrize(
    ("size", "portal", "bits", "number", "words"),
    [
        (4, PORTAL, 2, errno.ENOENT, "no match entry takes it"),
        (4, 31, BITS, errno.ENOENT, "nothing is attached to its portal"),
        (9, PORTAL, BITS, errno.EMSGSIZE, "does not fit the memory there"),
    ],
)
def test_who_asks_in_vain_is_told_why(
    method: str, size: int, portal: int, bits: int, number: int, words: str
) -> None:
    two = Two()
    if method == "put":
        two.put(bytes(size), portal, bits)
    else:
        two.get(size, portal, bits)
    sent, answer = two.events
    assert (sent.kind, sent.status) == (EventKind.SEND, 0)
    assert answer.kind is (EventKind.ACK if method == "put" else EventKind.REPLY)
    assert (answer.status, answer.unlinked) == (-number, True)
    assert answer.reason.startswith("the peer dropped it: ")
    assert words in answer.reason
    assert two.a.next_deadline() is None
    assert sum(two.b.stats.drops.values()) == 1
    two.fabric.assert_conserved()


def test_a_kernel_node_sees_no_notice() -> None:
    two = Two(kernel=True)
    two.put(bytes(4), 31)
    two.get(4, 31)
    assert two.events.kinds == ["SEND", "SEND"]
    assert two.b.stats.send_count == 0


def test_who_wants_no_ack_gets_no_notice() -> None:
    two = Two()
    two.a.put(two.a.memory.md_bind(bytes(4), two.events, threshold=1), B, 31, BITS, ack=False)
    two.fabric.run()
    assert two.events.kinds == ["SEND"]
    assert two.b.stats.send_count == 0


def test_a_descriptor_that_goes_on_is_told_of_each() -> None:
    two = Two()
    md = two.a.memory.md_bind(bytes(4), two.events)
    for portal in (31, PORTAL, 31, PORTAL, 31):
        two.a.put(md, B, portal, BITS)
    two.fabric.run()
    acks = [event.status for event in two.events if event.kind is EventKind.ACK]
    assert sorted(acks) == [-errno.ENOENT] * 3 + [0, 0]
    assert md.linked
    assert not md.acks_due
    two.a.memory.md_unlink(md)
    two.fabric.assert_conserved()


def test_a_notice_that_nobody_waits_for_is_dropped() -> None:
    """Forged, or late: it ends nothing."""
    two = Two()
    md = two.a.memory.md_bind(bytearray(4), two.events)
    two.put(bytes(4), 31)
    ((_, event),) = [(n, event) for n, event in enumerate(two.events) if event.kind is EventKind.ACK]
    assert event.hdr is not None
    assert is_refusal(event.hdr.length)
    forged = event.hdr.copy()
    for wmd in (forged.wmd, md.wmd, bytes(16)):
        forged.wmd = wmd
        ni = two.a.nis[A]
        assert two.a.receiver(ni, B).begin(forged.copy(), None) == 0  # type: ignore[arg-type]
    assert two.a.stats.drops["answer to nothing that waits"] == 3
    assert md.linked
    assert len(two.events) == 2


def test_a_message_that_waited_and_does_not_fit_is_refused_then() -> None:
    two = Two()
    two.b.memory.set_lazy(40)
    two.put(bytes(9), 40)
    assert two.events.kinds == []
    me = two.b.memory.me_attach(40, match_bits=BITS)
    two.b.memory.md_attach(me, bytearray(8), None, options=OP_PUT)
    two.fabric.run()
    assert two.events.kinds == ["SEND", "ACK"]
    assert two.events[-1].status == -errno.EMSGSIZE
    two.fabric.assert_conserved()


@pytest.mark.parametrize("speaks", [True, False])
def test_a_kernel_node_that_speaks_is_not_blamed_for_what_it_drops(speaks: bool) -> None:
    two = Two(kernel=True)
    two.put(bytes(4), 31)
    two.fabric.clock.now += 1
    if speaks:
        two.get(4)
    two.fabric.clock.now += 1000
    two.a.tick(two.fabric.clock.now)
    assert two.events.kinds == ["SEND", *(["SEND", "REPLY"] if speaks else []), "ACK", "UNLINK"]
    pni = two.a.peers.find_ni(B)
    assert pni is not None
    assert (pni.health == 1000) == speaks
    assert (pni.state is PeerNiState.FAILED) != speaks


def test_memory_that_truncates_refuses_nothing() -> None:
    two = Two()
    me = two.b.memory.me_attach(41, match_bits=BITS)
    two.b.memory.md_attach(me, bytearray(8), None, options=OP_PUT | TRUNCATE)
    two.put(bytes(9), 41)
    assert [(event.status, event.mlength) for event in two.events if event.kind is EventKind.ACK] == [(0, 8)]

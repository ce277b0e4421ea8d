"""Messages that go nowhere are counted by their reason, and told in the log of both sides, in few lines."""

from __future__ import annotations

import pytest

from support.fabric import Fabric, Recorder
from ulnet.control.instance import LNet
from ulnet.core.drops import IN_DOUBT
from ulnet.core.faults import Fault, FaultKind
from ulnet.core.guard.identity import tag_of
from ulnet.core.md import OP_PUT
from ulnet.core.msg import Incoming
from ulnet.nid import ANY_NID, Nid
from ulnet.wire.lnet import NO_WMD, Header, MsgType

A, B, C = "10.0.0.1@tcp", "10.0.0.2@tcp", "10.0.1.3@tcp1"
PORTAL, BITS = 30, 1


class NoPayload:
    """Of a message that has none."""

    def take(self, incoming: Incoming | None, buffers: list[memoryview], mlen: int, rlen: int) -> None:
        raise AssertionError

    def abandon(self, incoming: Incoming) -> bool:
        raise AssertionError

    def unanswered(self) -> None:
        pass


class Two:
    """`a` sends; `b` has eight bytes."""

    def __init__(self) -> None:
        self.fabric = Fabric()
        self.a, self.b = self.fabric.node(A), self.fabric.node(B)
        me = self.b.memory.me_attach(PORTAL, match_bits=BITS)
        self.b.memory.md_attach(me, bytearray(8), None, options=OP_PUT)
        self.events = Recorder()

    def put(self, data: bytes = b"data", portal: int = PORTAL, bits: int = 2, *, ack: bool = True) -> None:
        md = self.a.memory.md_bind(data, self.events, threshold=1 + ack)
        self.a.put(md, Nid.parse(B), portal, bits, ack=ack)
        self.fabric.run()

    def said(self) -> list[str]:
        """What both have logged of drops since the last time."""
        lines = [line for line in self.fabric.reports if "dropped a" in line]
        self.fabric.reports.clear()
        return lines

    def trusts(self, one: LNet, other: LNet, nid: str) -> None:
        one.peers.add(Nid.parse(nid), []).guard = tag_of(other.state.cookie)


@pytest.mark.requirement("dbg-025")
def test_reason_source_and_portal_are_logged() -> None:
    two = Two()
    two.put(ack=False)
    two.put(portal=31, ack=False)
    two.put(b"longer than eight", bits=BITS, ack=False)
    two.a.get(two.a.memory.md_bind(bytearray(3), two.events), Nid.parse(B), 32, 7)
    two.fabric.run()
    assert two.said() == [
        f"dropped a PUT of 4 bytes from {A} to portal 30, match bits 0x2: no matching entry",
        f"dropped a PUT of 4 bytes from {A} to portal 31, match bits 0x2: nothing is attached to the portal",
        f"dropped a PUT of 17 bytes from {A} to portal 30, match bits 0x1: "
        "message longer than the matching memory descriptor",
        f"dropped a GET of 3 bytes from {A} to portal 32, match bits 0x7: nothing is attached to the portal",
    ]
    assert two.b.stats.drop_count == 4
    assert sum(two.b.stats.drops.values()) == 4


@pytest.mark.requirement("dbg-025")
def test_who_sent_it_logs_it_too_where_it_is_told() -> None:
    two = Two()
    two.trusts(two.a, two.b, B)
    two.trusts(two.b, two.a, A)
    two.put()
    two.a.get(two.a.memory.md_bind(bytearray(3), two.events), Nid.parse(B), 31, 7)
    two.fabric.run()
    why = "no match entry takes it: see its portal and match bits"
    assert [line for line in two.said() if not line.startswith("dropped")] == [
        f"{B} dropped a PUT of ours, match bits 0x2: {why}",
        f"{B} dropped a GET of ours, match bits 0x7: nothing is attached to its portal",
    ]


@pytest.mark.requirement("dbg-025")
def test_a_flood_is_a_few_lines_and_the_number_of_those_left_out() -> None:
    two = Two()
    for _ in range(100):
        two.put(ack=False)
    two.fabric.clock.now += 1
    two.put(ack=False)
    line = f"dropped a PUT of 4 bytes from {A} to portal 30, match bits 0x2: no matching entry"
    assert two.said() == [line, f"{line} (and 99 more like this)"]
    two.fabric.clock.now += 1
    for bits in range(10, 1000):  # of one source and portal
        two.put(bits=bits, ack=False)
    assert len(two.said()) == 1
    two.fabric.clock.now += 1
    for portal in range(64):  # of many kinds
        two.put(portal=portal, ack=False)
    assert len(two.said()) == 16
    assert sum(two.b.stats.drops.values()) == 100 + 1 + 990 + 64


@pytest.mark.requirement("dbg-025")
def test_what_a_node_that_is_no_router_drops_names_whom_it_is_for() -> None:
    two = Two()
    header = Header(int(MsgType.PUT), Nid.parse(C), Nid.parse(A), 12345, 12345, 0, NO_WMD, 1, portal=30)
    assert not two.b.receiver(two.b.nis[Nid.parse(B)], Nid.parse(A)).begin(header, NoPayload())
    assert two.said() == [
        f"dropped a PUT of 0 bytes from {A} for {C} to portal 30, match bits 0x1: "
        "not for this node, and routing is disabled"
    ]
    assert two.b.stats.drop_count == 1


def test_what_nobody_lost_is_counted_and_not_logged() -> None:
    two = Two()
    two.b.faults.add(Fault(FaultKind.DROP, ANY_NID, ANY_NID, rate=1))
    two.put(ack=False)
    assert two.b.stats.drops["a fault rule"] == 1
    two.b.faults.delete(FaultKind.DROP, ANY_NID, ANY_NID)
    ack = two.a.memory.md_bind(b"data", two.events, threshold=2, timeout=1.0)
    two.a.put(ack, Nid.parse(B), PORTAL, BITS)
    two.a.memory.md_unlink(ack)  # its ACK finds nobody
    two.fabric.run()
    assert two.a.stats.drops["answer to nothing that waits"] == 1
    assert not two.said()


@pytest.mark.requirement("dbg-025")
@pytest.mark.parametrize(("count", "words"), [(1, "a PUT"), (7, "up to 7 PUTs")])
def test_what_a_broken_connection_may_cost_is_told(count: int, words: str) -> None:
    two = Two()
    two.put(ack=False)
    two.fabric.reports.clear()
    two.a.in_doubt(two.a.nis[Nid.parse(A)], Nid.parse(B), count)
    assert two.a.stats.drops[IN_DOUBT] == count
    assert two.fabric.reports == [
        f"the connection from {A} to {B} broke, and {words} without ACK may be lost with it: "
        "use ACKs where that matters"
    ]

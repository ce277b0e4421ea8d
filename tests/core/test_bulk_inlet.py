"""Large messages that are like the one before: what may happen before all of a payload is there."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from support.lanes import BITS, PORTAL, A, B, World
from support.store import STORE, Store
from ulnet.core.bulk_inlet import BulkInlet
from ulnet.core.md import INFINITE, MANAGE_REMOTE, OP_PUT, Md
from ulnet.core.msg import Msg
from ulnet.core.status import HealthStatus
from ulnet.nid import Nid
from ulnet.wire.lnet import NO_WMD, Header, MsgType

SIZE = 5000


class Arrival:
    """B's inlet for what comes from A: one PUT was taken whole, and the next has begun."""

    def __init__(self, ack: bool = True, threshold: int = INFINITE) -> None:
        self.world = World(True)
        self.world.warm()
        core = self.core = self.world.b
        self.inlet: BulkInlet = core.inlet(core.nis[B], A)
        self.memory = bytearray(SIZE)
        self.seen: list[tuple[str, int, bool]] = []
        me = core.memory.me_attach(PORTAL + 3, match_bits=BITS)
        self.md = core.memory.md_attach(
            me,
            self.memory,
            lambda event: self.seen.append((event.kind.name, event.status, event.unlinked)),
            options=OP_PUT | MANAGE_REMOTE,
            threshold=threshold,
        )
        md = self.world.a.memory.md_bind(b"", None)
        wmd = self.world.a.memory.wmd_of(md) if ack else NO_WMD
        self.hdr = Header(int(MsgType.PUT), B, A, 12345, 12345, SIZE, wmd, BITS, 0, PORTAL + 3)
        self.pni = core.peers.find_ni(A)
        assert self.pni is not None
        before = self.state()
        self.arrive(self.begin(), b"1")
        self.before = (*before[:3], before[3] + 1)

    def begin(self) -> Msg:
        msg = self.inlet.begin(self.hdr)
        assert msg is not None
        return msg

    def arrive(self, msg: Msg, byte: bytes) -> None:
        for piece in msg.payload:
            piece[:] = byte * len(piece)
        if not self.inlet.end(msg):
            self.core.finalize(msg, HealthStatus.OK)
        self.inlet.settle()
        self.world.fabric.run()

    def state(self) -> tuple[int, int, int, int]:
        assert self.pni is not None
        return self.core.stats.msgs_alloc, self.core.nis[B].refs, self.pni.refs, self.core.stats.recv_count


def test_a_message_under_way_is_counted_and_over_when_all_is_there() -> None:
    here = Arrival()
    msg = here.begin()
    allocated, refs, peer_refs, received = here.state()
    assert (allocated, refs, peer_refs) == tuple(count + 1 for count in here.before[:3])
    assert received == here.before[3]
    assert here.md.refs == 1
    assert len(here.seen) == 1
    here.arrive(msg, b"2")
    assert here.state() == (*here.before[:3], here.before[3] + 1)
    assert here.memory == b"2" * SIZE
    assert here.seen == [("PUT", 0, False)] * 2
    assert here.core.nis[B].stats.sent[0] >= 2  # each was acknowledged


@pytest.mark.parametrize(
    "change",
    [
        lambda here: here.core.settings_changed(),
        lambda here: here.core.peers.find(A).mark(remove=0x1),
        lambda here: here.core.memory.me_attach(PORTAL + 3, match_bits=BITS, at_head=True),
    ],
    ids=["settings", "peer", "another entry"],
)
def test_what_changes_meanwhile_does_not_change_what_has_begun(change: Callable[[Arrival], object]) -> None:
    here = Arrival()
    msg = here.begin()
    change(here)
    here.arrive(msg, b"3")
    assert here.memory == b"3" * SIZE
    assert here.seen == [("PUT", 0, False)] * 2
    assert here.state() == (*here.before[:3], here.before[3] + 1)
    assert here.md.refs == 0


def test_memory_that_is_unlinked_meanwhile_ends_with_that_message() -> None:
    here = Arrival()
    msg = here.begin()
    here.core.memory.md_unlink(here.md)
    here.arrive(msg, b"4")
    assert here.seen == [("PUT", 0, False), ("PUT", -errno.ETIMEDOUT, True)]
    assert not here.md.linked
    assert here.state()[:3] == here.before[:3]
    assert here.inlet.begin(here.hdr) is None


def test_a_connection_that_breaks_ends_the_message_with_an_error() -> None:
    here = Arrival()
    msg = here.begin()
    here.inlet.close()
    here.core.finalize(msg, HealthStatus.REMOTE_ERROR, errno.EIO, "it broke")
    assert here.seen == [("PUT", 0, False), ("PUT", -errno.EIO, False)]
    assert here.state() == here.before
    assert here.md.refs == 0


def test_the_last_operation_of_memory_goes_the_general_way() -> None:
    here = Arrival(threshold=3)
    here.arrive(here.begin(), b"5")
    assert here.md.threshold == 1
    assert here.inlet.begin(here.hdr) is None


def test_memory_that_is_taken_back_is_held_by_nobody() -> None:
    here = Arrival(ack=False)
    here.arrive(here.begin(), b"6")
    here.core.memory.md_unlink(here.md)
    del here.md
    here.memory.extend(b"more")  # as long as anyone has a view of it, its size is fixed


# What is fetched ------------------------------------------------------------------------------------


def reply_to(md: Md, world: Store) -> Header:
    return Header(int(MsgType.REPLY), A, B, 12345, 12345, SIZE, world.a.memory.wmd_of(md))


def asked(count: int) -> tuple[Store, BulkInlet, Md, Header]:
    world = Store(True)
    md = world.sink(SIZE)
    for _ in range(count):
        world.get(md, B, STORE, BITS)
    world.fabric.tell()  # type: ignore[attr-defined]
    for ni, msg in world.fabric.wire:
        driver = ni.lnd
        driver.core.finalize(msg, HealthStatus.OK)  # type: ignore[attr-defined]
    world.fabric.wire.clear()
    return world, world.a.inlet(world.a.nis[A], B), md, reply_to(md, world)


def test_only_what_was_asked_for_is_taken() -> None:
    world, inlet, md, hdr = asked(2)
    for _ in range(2):
        msg = inlet.begin(hdr)
        assert msg is not None
        assert inlet.end(msg)
    assert inlet.begin(hdr) is None
    assert md.refs == 0
    assert [one[0].name for one in world.events[0].seen].count("REPLY") == 2
    world.fabric.assert_conserved()


def test_too_much_is_not_taken() -> None:
    _, inlet, md, hdr = asked(1)
    hdr.payload_length = SIZE + 1
    assert inlet.begin(hdr) is None
    assert md.replies_due == 1


def test_a_reply_that_breaks_off_is_no_load_any_more() -> None:
    world, inlet, md, hdr = asked(1)
    pni = world.a.peers.find_ni(B)
    assert pni is not None
    flow = pni.flows[world.a.nis[A]]
    assert flow.outstanding
    msg = inlet.begin(hdr)
    assert msg is not None
    inlet.close()
    world.a.finalize(msg, HealthStatus.REMOTE_ERROR, errno.EIO, "it broke")
    assert flow.outstanding == 0
    assert [one[1] for one in world.events[0].seen if one[0].name == "REPLY"] == [-errno.EIO]
    assert md.refs == 0


def test_a_nid_that_is_not_the_senders_is_not_taken() -> None:
    _, inlet, _, hdr = asked(1)
    hdr.src_nid = Nid.parse("10.9.9.9@tcp")
    assert inlet.begin(hdr) is None


@pytest.mark.parametrize("well", [True, False])
def test_memory_whose_last_message_ended_otherwise_is_held_by_nobody(well: bool) -> None:
    here = Arrival(ack=False)
    msg = here.begin()
    here.core.memory.md_unlink(here.md)
    if well:
        here.arrive(msg, b"7")
    else:
        here.inlet.close()
        here.core.finalize(msg, HealthStatus.REMOTE_ERROR, errno.EIO, "it was cut short")
    del here.md, msg
    here.memory.extend(b"more")

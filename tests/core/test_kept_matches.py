"""What the last header of a connection led to holds for the next one like it, and no longer than it is true.

The header is one object, as drivers hand up messages that are alike; whole, or begun and ended.
"""

from __future__ import annotations

from typing import Any

import pytest

from core.test_core_regressions import attach
from support.fabric import Fabric
from ulnet.control.instance import LNet
from ulnet.core.md import MdOption
from ulnet.core.msg import Incoming
from ulnet.core.receiver import Receiver
from ulnet.nid import Nid
from ulnet.wire.lnet import Header, MsgType, pack_header

A, B, C = (Nid.parse(f"10.0.0.{n}@tcp") for n in (1, 2, 3))
PUTS = MdOption.OP_PUT | MdOption.MANAGE_REMOTE
PAYLOAD = b"payload!"
OFTEN = 4


class Reading:
    """The payload of a message that was begun: all of it is there at once."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def take(self, incoming: Incoming | None, buffers: list[memoryview], mlen: int, rlen: int) -> None:
        for buffer in buffers:
            buffer[:] = PAYLOAD
        if incoming is not None:
            self._receiver.end(incoming)

    def abandon(self, incoming: Incoming) -> bool:
        return False

    def unanswered(self) -> None:
        pass


class Line:
    """A connection of A at B, by which one PUT comes again and again."""

    def __init__(self, core: LNet, whole: bool, **fields: Any) -> None:
        self.core = core
        self.receiver = core.receiver(core.nis[B], A)
        self.whole = whole
        given = {"portal": 5, "match_bits": 7, "dest_pid": 12345, "src_pid": 12345, **fields}
        self.hdr = Header(int(MsgType.PUT), B, A, payload_length=len(PAYLOAD), **given)

    def comes(self) -> None:
        """Once more."""
        if not self.whole:
            assert self.receiver.begin(self.hdr, Reading(self.receiver)) == 0
            return
        raw = pack_header(self.hdr, False)
        data = bytearray(raw + PAYLOAD)
        if not self.receiver.deliver(self.hdr, raw, data, memoryview(data), 0, len(data)):
            assert self.receiver.begin(self.hdr, Reading(self.receiver)) == 0

    def comes_often(self) -> None:
        """So often that nothing changes any more."""
        for _ in range(OFTEN):
            self.comes()


@pytest.fixture
def core() -> LNet:
    fabric = Fabric()
    fabric.node(str(A))
    return fabric.node(str(B))


@pytest.mark.parametrize("whole", [True, False])
def test_memory_that_is_attached_before_the_other_takes_the_next_message(core: LNet, whole: bool) -> None:
    first, second = bytearray(8), bytearray(8)
    attach(core, first, None, options=PUTS)
    line = Line(core, whole)
    line.comes_often()
    assert first == PAYLOAD
    first[:] = bytes(8)
    me = core.memory.me_attach(5, match_bits=7, at_head=True)
    core.memory.md_attach(me, second, None, options=PUTS)
    line.comes()
    assert [bytes(first), bytes(second)] == [bytes(8), PAYLOAD]


@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_memory_that_is_used_up_takes_no_message_more(core: LNet, whole: bool, stays: bool) -> None:
    first, second = bytearray(8), bytearray(8)
    attach(core, first, None, options=PUTS, threshold=OFTEN, auto_unlink=not stays)
    attach(core, second, None, options=PUTS)
    line = Line(core, whole)
    line.comes_often()
    first[:] = bytes(8)
    line.comes()
    assert [bytes(first), bytes(second)] == [bytes(8), PAYLOAD]


@pytest.mark.parametrize("whole", [True, False])
def test_memory_that_was_taken_back_takes_no_message_more(core: LNet, whole: bool) -> None:
    memory = bytearray(8)
    md = attach(core, memory, None, options=PUTS)
    line = Line(core, whole)
    line.comes_often()
    memory[:] = bytes(8)
    core.memory.md_unlink(md)
    line.comes()
    assert memory == bytes(8)
    assert core.stats.drop_count == 1


@pytest.mark.parametrize("whole", [True, False])
def test_an_ni_that_shuts_down_takes_no_message_more(core: LNet, whole: bool) -> None:
    memory = bytearray(8)
    attach(core, memory, None, options=PUTS)
    line = Line(core, whole)
    line.comes_often()
    memory[:] = bytes(8)
    core.del_ni(B)
    line.comes()
    assert memory == bytes(8)


@pytest.mark.parametrize("whole", [True, False])
def test_messages_count_for_the_peer_that_has_the_nid_by_now(core: LNet, whole: bool) -> None:
    """And its event names that peer's primary NID."""
    told: list[Nid] = []
    attach(core, bytearray(8), lambda event: told.append(event.initiator), options=PUTS)
    line = Line(core, whole)
    line.comes_often()
    core.peers.add(C, [A])
    line.comes()
    assert told == [*[A] * OFTEN, C]


@pytest.mark.parametrize("whole", [True, False])
def test_acknowledgements_go_to_the_peer_that_has_the_nid_by_now(whole: bool) -> None:
    fabric = Fabric()
    fabric.node(str(A))
    core = fabric.node(str(B))
    attach(core, bytearray(8), None, options=PUTS)
    line = Line(core, whole, wmd=bytes(range(1, 16)) + b"\0")
    line.comes_often()
    core.peers.add(C, [A])
    line.comes()
    acks = [msg for _, msg in fabric.wire]
    assert [(msg.hdr.type, msg.next_nid, msg.hdr.dest_nid) for msg in acks] == [(MsgType.ACK, A, A)] * (
        OFTEN + 1
    )
    assert [msg.peer_ni.peer.primary_nid for msg in acks if msg.peer_ni is not None][-1] == C

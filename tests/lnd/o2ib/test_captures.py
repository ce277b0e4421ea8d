"""The recorded conversation of two kernel nodes, played to a node of ours in either place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.rdma import Stranger
from support.shared import shared_path
from ulnet.capture.packet import UDP, ip_payload
from ulnet.capture.pcap import read_packets
from ulnet.sim import SimNode, Simulation
from ulnet.wire.o2ib import MAGIC, O2ibMessage, O2ibType
from ulnet.wire.ping import PingInfo

pytestmark = pytest.mark.requirement("LND-o2ib")
CALLER, CALLED = "192.168.110.11@o2ib", "192.168.110.12@o2ib"


@pytest.fixture
def recorded() -> list[tuple[O2ibMessage, bytes]]:
    """CONNREQ, CONNACK, GET and REPLY, as messages and as bytes."""
    found = []
    with shared_path("vectors/k0_o2iblnd_rxe_connect_ping_only.pcap").open("rb") as file:
        for packet in read_packets(file):
            carried = ip_payload(packet.link_type, packet.data)
            if carried is not None and carried.protocol == UDP:
                at = carried.data.find(MAGIC.to_bytes(4, "little"))
                if at >= 0:
                    message = O2ibMessage.unpack(carried.data[at:])
                    found.append((message, message.pack()))
    assert [message.type.name for message, _ in found] == ["CONNREQ", "CONNACK", "IMMEDIATE", "IMMEDIATE"]
    return found


def in_place(recorded: list[tuple[O2ibMessage, bytes]], ours: str, theirs: str) -> tuple[SimNode, Stranger]:
    """A node of ours with one of the recorded incarnations, and a stranger with the other."""
    (request, _), (ack, _), *_ = recorded
    stamps = {CALLER: request.src_incarnation, CALLED: ack.src_incarnation}
    sim = Simulation(1, thorough=True)
    node = sim.node("a")
    node.o2ib._realtime_ns = lambda: stamps[ours]
    node.add_ni(ours)
    stranger = Stranger(sim, theirs)
    stranger.incarnation = stamps[theirs]
    stranger.answers_pings = False
    return node, stranger


def test_we_answer_as_the_kernel_did(recorded: list[tuple[O2ibMessage, bytes]]) -> None:
    (_, request), (_, ack), (_, get), (reply, reply_bytes) = recorded
    node, stranger = in_place(recorded, CALLED, CALLER)
    stranger.call(node, request)
    assert stranger.events[0][2] == ack
    stranger.say_bytes(get)
    answer = stranger.wait_for(O2ibType.IMMEDIATE)
    assert stranger.raw[-1][:8] == reply_bytes[:8]  # magic, version, type, credits
    assert stranger.raw[-1][12:72] == reply_bytes[12:72]  # both ends, LNet header up to the length
    assert answer.header is not None and reply.header is not None
    assert answer.header == replace_length(reply, len(answer.payload))
    theirs, ours = PingInfo.unpack(reply.payload), PingInfo.unpack(answer.payload)
    assert [entry.nid for entry in ours.entries] == [entry.nid for entry in theirs.entries]
    assert ours.features & 0x1E == theirs.features & 0x1E
    stranger.sim.run_until_quiet()


def replace_length(message: O2ibMessage, length: int) -> object:
    assert message.header is not None
    hdr = message.header.copy()
    hdr.payload_length = length
    return hdr


def test_we_ask_as_the_kernel_did(recorded: list[tuple[O2ibMessage, bytes]]) -> None:
    (_, request), (_, ack), (get, _), (reply, _) = recorded
    node, stranger = in_place(recorded, CALLER, CALLED)
    stranger.answers = [ack]
    assert get.header is not None
    ping = node.ping(CALLED, size=get.header.length)
    asked = stranger.wait_for(O2ibType.IMMEDIATE)
    assert stranger.raw[0] == request
    assert asked.header is not None and reply.header is not None
    ours = replace(asked, header=get.header)
    assert ours == get  # all but the handle, which is its own node's
    assert asked.header.wmd != get.header.wmd
    for name in ("type", "dest_nid", "src_nid", "dest_pid", "src_pid", "match_bits", "portal", "length"):
        assert getattr(asked.header, name) == getattr(get.header, name)
    hdr = reply.header.copy()
    hdr.wmd = asked.header.wmd
    stranger.say_bytes(replace(reply, header=hdr).pack())
    stranger.sim.run_until_quiet()
    assert ping.ok
    assert bytes(ping.buffer[: len(reply.payload)]) == reply.payload

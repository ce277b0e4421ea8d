"""Nodes that are not ours: the single-rail generation, recorded kernel bytes, hostile bytes."""

from __future__ import annotations

from random import Random

import pytest

from ulnet.nid import Nid
from ulnet.sim import Simulation
from ulnet.wire.lnet import HEADER_SIZE, PING_MATCH_BITS, PING_PORTAL, Header, MsgType, pack_header
from ulnet.wire.ping import Feature, NiEntry, PingInfo

OURS = Nid.parse("10.0.0.1@tcp")
OTHER = Nid.parse("10.0.0.9@tcp")


def test_single_rail_nodes_answer_without_the_bit_and_take_no_push() -> None:
    sim = Simulation(1)
    ours = sim.node("ours", OURS)
    inbox = ours.attach(30)
    old = sim.single_rail("old", OTHER)
    ping = ours.ping(OTHER)
    put = ours.put(OTHER, 30, data=b"hello")
    get = ours.get(OTHER, 30, size=100)
    sim.run_until_quiet()
    info = PingInfo.unpack(bytes(ping.buffer[: ping.taken]))
    assert not info.features & (Feature.MULTI_RAIL | Feature.DISCOVERY)
    assert [entry.nid for entry in info.entries] == [OTHER]
    assert put.ok
    assert get.ok
    assert [heard.payload for heard in old.puts] == [b"hello"]
    assert old.pushes == 0
    old.put(OTHER, OURS, 30, b"from the old one")
    old.ping(OTHER, OURS)
    sim.run_until_quiet()
    assert inbox.deliveries[-1].data == b"from the old one"
    reply = old.heard[-1]
    assert reply.hdr.type == MsgType.REPLY
    assert PingInfo.unpack(reply.payload).primary == OURS
    peer = ours.core.peers.find(OTHER)
    assert peer is not None
    assert not peer.multi_rail


def test_a_push_by_bytes_is_taken_like_a_kernel_nodes() -> None:
    """The bytes are those of a kernel node's push, under the NIDs of this simulation."""
    sim = Simulation(1)
    ours = sim.node("ours", OURS)
    second = Nid.parse("10.1.0.9@tcp1")
    kernel = sim.foreign("kernel", OTHER, second)
    hello = Header(
        int(MsgType.GET),
        OURS,
        OTHER,
        12345,
        12345,
        match_bits=PING_MATCH_BITS,
        portal=PING_PORTAL,
        length=272,
    )
    kernel.send(OTHER, OURS, hello)
    features = Feature.NI_STATUS | Feature.RTE_DISABLED | Feature.MULTI_RAIL | Feature.DISCOVERY
    info = PingInfo(int(features), sequence=7, entries=[NiEntry(OTHER), NiEntry(second)]).pack()
    push = Header(
        int(MsgType.PUT),
        OURS,
        OTHER,
        12345,
        12345,
        len(info),
        wmd=b"\x07" * 16,
        match_bits=PING_MATCH_BITS,
        portal=PING_PORTAL,
    )
    kernel.send_bytes(OTHER, OURS, pack_header(push, False) + info)
    sim.run(5)
    sim.check()
    assert MsgType.ACK in [heard.hdr.type for heard in kernel.heard]
    peer = ours.core.peers.find(OTHER)
    assert peer is not None
    assert list(peer.nids()) == [OTHER, second]


@pytest.mark.parametrize("seed", range(40))
def test_garbage_harms_nobody(seed: int) -> None:
    sim = Simulation(seed, thorough=True)
    ours = sim.node("ours", OURS)
    ours.attach(30, keep_data=False)
    bad = sim.foreign("bad", OTHER)
    good = sim.node("good", "10.0.0.3@tcp")
    rng = Random(seed)
    for _ in range(60):
        bad.send_bytes(OTHER, OURS, _garbage(rng))
    puts = [good.put(OURS, 30, data=b"x") for _ in range(5)]
    sim.run(10)
    sim.check()
    assert all(put.ok for put in puts)
    sim.foreigners["bad"].kill()
    sim.run_until_quiet()


def _garbage(rng: Random) -> bytes:
    """Random bytes, or a good message with a few of its bytes changed."""
    if rng.random() < 0.2:
        return rng.randbytes(rng.choice([0, 1, 71, 72, 200]))
    payload = rng.randbytes(rng.choice([0, 1, 100]))
    hdr = Header(
        rng.randrange(4),
        OURS,
        OTHER,
        12345,
        12345,
        len(payload),
        wmd=rng.randbytes(16),
        match_bits=rng.choice([0, PING_MATCH_BITS]),
        portal=rng.choice([0, 30, 63, 64]),
        length=rng.choice([0, 16, 272, 1 << 20]),
    )
    data = bytearray(pack_header(hdr, False) + payload)
    for _ in range(rng.choice([0, 0, 1, 3])):
        data[rng.randrange(HEADER_SIZE)] = rng.randrange(256)
    return bytes(data)

"""Frames of every protocol version: acknowledgements, keepalives, checksums (spec wire-socklnd.md §4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from lnd.conftest import Addresses
from lnd.kit import RawPeer, Side, connect, lnet_frame, noop, put_header, turns, until
from ulnet.core.status import HealthStatus
from ulnet.nid import Nid
from ulnet.wire.lnet import pack_header
from ulnet.wire.socklnd import ConnType, FrameType, checksum, pack_frame_header

Make = Callable[..., Side]
CONTROL, IN, OUT = ConnType.CONTROL, ConnType.BULK_IN, ConnType.BULK_OUT
NOOP = int(FrameType.NOOP)


async def peer_of(side: Side, nid: str, *kinds: ConnType, version: int = 3) -> list[RawPeer]:
    """A raw peer with these connections, as it sees them."""
    return [await connect(side, nid, kind, version=version) for kind in kinds]


# Zero-copy acknowledgements --------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 100, 20_000])
async def test_requests_are_acknowledged_on_our_bulk_in(make: Make, at: Addresses, length: int) -> None:
    a = make(at.nid(1))
    control, _, out = await peer_of(a, at.nid(2), CONTROL, IN, OUT)
    hdr = put_header(a.ni.nid, Nid.parse(at.nid(2)), length)
    await control.send(lnet_frame(hdr, bytes(length), cookie0=5))
    assert await out.read(24) == noop(0, 5)
    await control.silent()


async def test_acknowledgements_that_wait_together_go_as_a_range(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    control, out = await peer_of(a, at.nid(2), CONTROL, OUT)
    hdr = put_header(a.ni.nid, Nid.parse(at.nid(2)), 10)
    cookies = [2, 3, 4, 9, 7, 8]
    await control.send(b"".join(lnet_frame(hdr, bytes(10), cookie0=cookie) for cookie in cookies))
    assert await out.read(72) == noop(2, 4) + noop(0, 9) + noop(7, 8)


async def test_protocol_2_acknowledges_one_by_one_where_it_can(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    (control,) = await peer_of(a, at.nid(2), CONTROL, version=2)
    hdr = put_header(a.ni.nid, Nid.parse(at.nid(2)), 10)
    await control.send(b"".join(lnet_frame(hdr, bytes(10), cookie0=cookie) for cookie in (2, 3)))
    assert await control.read(48) == noop(0, 2) + noop(0, 3)


async def test_truncated_and_unwanted_payloads_are_acknowledged(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    control, out = await peer_of(a, at.nid(2), CONTROL, OUT)
    hdr = put_header(a.ni.nid, Nid.parse(at.nid(2)), 5000)
    for take, cookie in ((100, 6), (0, 9)):
        a.core.truncate = take
        await control.send(lnet_frame(hdr, bytes(5000), cookie0=cookie))
        assert await out.read(24) == noop(0, cookie)


@pytest.mark.parametrize("begun", [100, 15_000])
async def test_a_payload_that_is_abandoned_touches_its_memory_no_more(
    make: Make, at: Addresses, begun: int
) -> None:
    a = make(at.nid(1))
    control, out = await peer_of(a, at.nid(2), CONTROL, OUT)
    hdr = put_header(a.ni.nid, Nid.parse(at.nid(2)), 20_000)
    frame = lnet_frame(hdr, b"x" * 20_000, cookie0=7)
    await control.send(frame[:begun])
    await until(lambda: a.core.arrivals and a.core.arrivals[0].memory[begun - 97] == ord("x"))
    first = a.core.arrivals[0]
    assert first.rx.abandon(first.msg)
    assert not first.rx.abandon(first.msg)
    a.core.open.remove(first.msg)  # which is never finalized
    came = bytes(first.memory)
    assert 0 < came.count(b"x") < 20_000
    await control.send(frame[begun:] + lnet_frame(hdr, b"y" * 20_000, cookie0=8))
    await until(lambda: a.core.outcomes)
    assert bytes(first.memory) == came
    second = a.core.arrivals[1]
    assert (a.core.outcomes[0].msg, bytes(second.memory)) == (second.msg, b"y" * 20_000)
    assert await out.read(24) in (noop(0, 7), noop(7, 8))
    assert not second.rx.abandon(second.msg)  # it is complete


@pytest.mark.parametrize("kinds", [[CONTROL], [CONTROL, IN]])
async def test_an_acknowledgement_that_cannot_be_sent_ends_the_peer(
    make: Make, at: Addresses, kinds: list[ConnType]
) -> None:
    a = make(at.nid(1))
    raws = await peer_of(a, at.nid(2), *kinds)
    await raws[0].send(lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(2)), 0), cookie0=5))
    for raw in raws:
        assert await raw.rest() == (b"", "EOF")


async def test_without_nonblk_zcack_any_connection_serves(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), nonblk_zcack=False)
    (control,) = await peer_of(a, at.nid(2), CONTROL)
    await control.send(lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(2)), 0), cookie0=5))
    assert await control.read(24) == noop(0, 5)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    "cookies", [(0, 0), (0, 2), (5, 3), (3, 5), (1, 1), (2, 1), (1 << 63, (1 << 64) - 1)]
)
async def test_acknowledgements_of_nothing_are_protocol_errors(
    make: Make, at: Addresses, version: int, cookies: tuple[int, int]
) -> None:
    a = make(at.nid(1))
    control, out = await peer_of(a, at.nid(2), CONTROL, OUT, version=version)
    other = await connect(a, at.nid(3))
    await control.send(noop(*cookies))
    assert await control.rest() == (b"", "EOF")
    assert await out.rest() == (b"", "EOF")
    await other.silent()


async def test_a_piggy_backed_acknowledgement_of_nothing_is_a_protocol_error(
    make: Make, at: Addresses
) -> None:
    a = make(at.nid(1))
    (control,) = await peer_of(a, at.nid(2), CONTROL)
    await control.send(lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(2)), 0), cookie1=4))
    assert (await control.rest())[0] == b""
    assert not a.core.arrivals


async def test_a_peer_that_never_reads_its_acknowledgements_is_bounded(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), tx_buffer_size=4608)
    control, out = await peer_of(a, at.nid(2), CONTROL, OUT)
    hdr = put_header(a.ni.nid, Nid.parse(at.nid(2)), 0)
    burst = b"".join(lnet_frame(hdr, cookie0=cookie) for cookie in range(10, 2010, 2))

    async def flood() -> None:
        while True:
            await control.send(burst)

    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        await asyncio.wait_for(flood(), 60)
    assert not a.lnd.open_connections
    assert out.sock.fileno() >= 0


async def test_more_acknowledgements_wait_than_the_kernel_takes_pieces(make: Make, at: Addresses) -> None:
    """The connection went on with EMSGSIZE, and a peer could have this node blame its own NI for that."""
    a = make(at.nid(1), tx_buffer_size=4608)
    (control,) = await peer_of(a, at.nid(2), CONTROL, version=2)
    msg = a.put(at.nid(2), bytes(8 << 20))
    hdr = put_header(a.ni.nid, Nid.parse(at.nid(2)), 0)
    asked = range(10, 5810, 2)
    await control.send(b"".join(lnet_frame(hdr, cookie0=cookie) for cookie in asked))
    await until(a.core.complete(len(asked)))
    assert len((await control.frame())[5]) == 8 << 20
    assert await control.read(24 * len(asked)) == b"".join(noop(0, cookie) for cookie in asked)
    assert (await a.ended(msg)).status is HealthStatus.OK


# Keepalives ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 4])
async def test_a_silent_peer_gets_a_keepalive(make: Make, at: Addresses, version: int) -> None:
    a = make(at.nid(1), tunables={"timeout": 1}, keepalive=0.02, sweep_interval=0.01)
    control, out = await peer_of(a, at.nid(2), CONTROL, OUT, version=version)
    assert await out.read(24) == noop(0, 1)
    await out.silent()  # not again within ten seconds
    await control.silent()


@pytest.mark.parametrize(("version", "kinds"), [(2, [CONTROL, OUT]), (3, [CONTROL, IN])])
async def test_no_keepalive_where_none_is_due(
    make: Make, at: Addresses, version: int, kinds: list[ConnType]
) -> None:
    a = make(at.nid(1), tunables={"timeout": 1}, keepalive=0.01, sweep_interval=0.01)
    for raw in await peer_of(a, at.nid(2), *kinds, version=version):
        await raw.silent(0.1)


async def test_a_talking_peer_gets_no_keepalive(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), tunables={"timeout": 1}, keepalive=0.2, sweep_interval=0.01)
    control, out = await peer_of(a, at.nid(2), CONTROL, OUT)
    for _ in range(15):
        await control.send(noop(0, 1))
        await asyncio.sleep(0.02)
    await out.silent(0.01)


async def test_keepalives_are_taken_and_not_answered(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    (control,) = await peer_of(a, at.nid(2), CONTROL)
    hdr = put_header(a.ni.nid, Nid.parse(at.nid(2)), 3)
    await control.send(noop(0, 1) * 3 + lnet_frame(hdr, b"abc") + noop(0, 1))
    await until(a.core.complete(1))
    await control.silent()


# Checksums -------------------------------------------------------------------------------------------


def summed(hdr: bytes, payload: bytes, version: int) -> bytes:
    """A frame with the checksum that a sender of that version may put there."""
    frame = pack_frame_header(FrameType.LNET)
    csum = checksum(frame, hdr, payload) if version == 2 else checksum(payload)
    return pack_frame_header(FrameType.LNET, csum) + hdr + payload


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("length", [0, 10, 70_000])
async def test_good_checksums_pass(make: Make, at: Addresses, version: int, length: int) -> None:
    a = make(at.nid(1))
    (control,) = await peer_of(a, at.nid(2), CONTROL, version=version)
    hdr = pack_header(put_header(a.ni.nid, Nid.parse(at.nid(2)), length), False)
    await control.send(summed(hdr, bytes(length), version) * 2)
    await until(a.core.complete(2))
    assert all(one.status is HealthStatus.OK for one in a.core.outcomes)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("length", [10, 70_000])
async def test_a_wrong_checksum_fails_the_message_and_the_peer(
    make: Make, at: Addresses, version: int, length: int
) -> None:
    a = make(at.nid(1))
    control, out = await peer_of(a, at.nid(2), CONTROL, OUT, version=version)
    hdr = pack_header(put_header(a.ni.nid, Nid.parse(at.nid(2)), length), False)
    data = bytearray(summed(hdr, bytes(length), version))
    data[-1] ^= 1
    await control.send(bytes(data))
    assert (await control.rest())[0] == b""
    assert (await out.rest())[0] == b""
    (outcome,) = a.core.outcomes
    assert outcome.status is HealthStatus.REMOTE_ERROR
    assert "checksum" in outcome.reason


async def test_a_wrong_checksum_of_a_bare_header(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    (control,) = await peer_of(a, at.nid(2), CONTROL, version=2)
    await control.send(lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(2)), 0), csum=123))
    assert (await control.rest())[0] == b""
    assert not a.core.arrivals


async def test_truncated_messages_are_not_checked(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    a.core.truncate = 5
    (control,) = await peer_of(a, at.nid(2), CONTROL, version=2)
    await control.send(lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(2)), 10), bytes(10), csum=123))
    await until(a.core.complete(1))
    assert a.core.outcomes[0].status is HealthStatus.OK


async def test_noops_with_checksums(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    (control,) = await peer_of(a, at.nid(2), CONTROL)
    await control.send(noop(0, 1, csum=9))
    assert (await control.rest())[0] == b""


async def test_we_send_checksums_in_protocol_2_only(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), enable_csum=True)
    for host, version in ((2, 2), (3, 3)):
        (raw,) = await peer_of(a, at.nid(host), CONTROL, version=version)
        await raw.send(lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(host)), 0), cookie0=0))
        a.put(at.nid(host), b"payload")
        kind, csum, _, _, hdr, payload = await raw.frame()
        assert hdr is not None
        whole = pack_frame_header(kind) + pack_header(hdr, False) + payload
        assert csum == (checksum(whole) if version == 2 else 0)
        a.put(at.nid(host), b"")
        kind, csum, _, _, hdr, _ = await raw.frame()
        assert hdr is not None
        assert csum == (checksum(pack_frame_header(kind), pack_header(hdr, False)) if version == 2 else 0)


async def test_checksummed_acknowledgements_in_protocol_2(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), enable_csum=True)
    (raw,) = await peer_of(a, at.nid(2), CONTROL, version=2)
    await raw.send(lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(2)), 0), cookie0=8))
    assert await raw.read(24) == noop(0, 8, csum=checksum(noop(0, 8)))


# Versions and byte order -----------------------------------------------------------------------------


async def test_protocol_1_has_bare_headers(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    raw = await connect(a, at.nid(2), version=1)
    assert raw.hello is not None and raw.hello.version == 1
    hdr = put_header(a.ni.nid, Nid.parse(at.nid(2)), 5000)
    await raw.send((pack_header(hdr, False) + bytes(5000)) * 2)
    await until(a.core.complete(2))
    assert a.core.arrivals[1].hdr == hdr
    msg = a.put(at.nid(2), b"answer")
    assert await raw.read(72 + 6) == pack_header(msg.hdr, False) + b"answer"


async def test_protocol_4_on_ipv4_has_large_headers(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    raw = await connect(a, at.nid(2), version=4)
    hdr = put_header(a.ni.nid, Nid.parse(at.nid(2)), 5)
    await raw.send(lnet_frame(hdr, b"hello", large=True))
    await until(a.core.complete(1))
    assert a.core.arrivals[0].hdr == hdr
    a.put(at.nid(2), b"answer")
    assert (await raw.frame(large=True))[5] == b"answer"


async def test_ipv6_nodes(make: Make) -> None:
    a = make("::1@tcp")
    a.put("::1@tcp", b"to myself")
    a.put("::1@tcp", bytes(100_000))
    await until(a.core.complete(2))
    assert {conn.version for conn in a.peer("::1@tcp").conns} == {4}


async def test_an_ipv6_peer_by_hand(make: Make) -> None:
    a = make("::1@tcp")
    raw = await connect(a, "::1@tcp", source="::1")
    assert raw.hello is not None and raw.hello.version == 4
    await raw.send(lnet_frame(put_header(a.ni.nid, a.ni.nid, 5), b"hello", large=True))
    await until(a.core.complete(1))


async def test_a_big_endian_peer_works_fully(make: Make, at: Addresses) -> None:
    """Kernel nodes break here; frames are in the peer's order, LNet headers always little-endian."""
    a = make(at.nid(1))
    control = await connect(a, at.nid(2), byteorder="big")
    assert control.hello is not None and control.hello.dst_nid == Nid.parse(at.nid(2))
    out = await connect(a, at.nid(2), OUT, byteorder="big")
    hdr = put_header(a.ni.nid, Nid.parse(at.nid(2)), 70_000)
    keepalive = pack_frame_header(FrameType.NOOP, 0, 0, 1, "big")
    await control.send(keepalive + lnet_frame(hdr, bytes(70_000), cookie0=5, byteorder="big"))
    await until(a.core.complete(1))
    assert a.core.arrivals[0].hdr == hdr
    assert await out.read(24) == noop(0, 5), "what we send is in our own order"


# Pieces ----------------------------------------------------------------------------------------------


async def test_every_way_to_cut_a_stream(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    (raw,) = await peer_of(a, at.nid(2), CONTROL)
    nid = Nid.parse(at.nid(2))
    sizes = [0, 5, 0, 40]
    stream = noop(0, 1) + b"".join(
        lnet_frame(put_header(a.ni.nid, nid, size, tag), bytes([tag]) * size)
        for tag, size in enumerate(sizes)
    )
    for cut in range(1, len(stream), 7):
        a.core.arrivals.clear()
        await raw.send(stream[:cut])
        await turns(3)
        await raw.send(stream[cut:])
        await until(a.core.complete(4))
        assert [bytes(one.memory) for one in a.core.arrivals] == [bytes([t]) * s for t, s in enumerate(sizes)]


async def test_byte_by_byte(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    (raw,) = await peer_of(a, at.nid(2), CONTROL)
    stream = lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(2)), 20), bytes(range(20))) + noop(0, 1)
    for _ in range(2):
        for byte in stream:
            await raw.send(bytes([byte]))
            await turns(2)
    await until(a.core.complete(2))
    assert all(one.memory == bytes(range(20)) for one in a.core.arrivals)

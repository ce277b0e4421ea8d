"""Many connections that come, go, break and wait, in one epoll: what arrives is whole and in order."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from lnd.conftest import Addresses
from lnd.kit import Arrival, RawPeer, Side, connect, lnet_frame, put_header, until
from ulnet.nid import Nid

Make = Callable[..., Side]
_PEERS = 24
_SIZES = [0, 0, 1, 100, 3000, 40_000, 200_000]


class Sender:
    """One peer: what it has sent on its present connection, and what waits to be."""

    def __init__(self, nid: str) -> None:
        self.nid = nid
        self.raw: RawPeer | None = None
        self.life = 0  # counts connections
        self.sent = 0  # messages on this one
        self.out = b""

    def begin(self, raw: RawPeer) -> None:
        self.raw = raw
        self.life += 1
        self.sent = 0
        self.out = b""

    def payload(self, life: int, number: int) -> bytes:
        rng = random.Random(f"{self.nid} {life} {number}")
        return rng.randbytes(rng.choice(_SIZES))

    def speak(self, to: Nid) -> None:
        data = self.payload(self.life, self.sent)
        hdr = put_header(to, Nid.parse(self.nid), len(data), tag=self.life << 32 | self.sent)
        self.out += lnet_frame(hdr, data)
        self.sent += 1

    def push(self, most: int) -> None:
        """Hand a piece to the kernel, as far as it takes it."""
        assert self.raw is not None
        with suppress(BlockingIOError, ConnectionResetError, BrokenPipeError):
            self.out = self.out[self.raw.sock.send(self.out[:most]) :]

    def drain(self) -> None:
        """Read what was answered."""
        assert self.raw is not None
        with suppress(BlockingIOError, ConnectionResetError):
            while self.raw.sock.recv(65536):
                pass


def whole(side: Side, senders: list[Sender]) -> None:
    """Whatever was taken is what was sent, each connection's in order without a hole."""
    seen: dict[tuple[str, int], int] = {}
    good = {outcome.msg for outcome in side.core.outcomes if not outcome.errno}
    by_nid = {sender.nid: sender for sender in senders}
    for arrival in side.core.arrivals:
        sender = by_nid[str(arrival.hdr.src_nid)]
        life, number = arrival.hdr.match_bits >> 32, arrival.hdr.match_bits & 0xFFFFFFFF
        assert seen.get((sender.nid, life), -1) + 1 == number
        seen[sender.nid, life] = number
        if arrival.msg in good:
            assert arrival.memory == sender.payload(life, number)


def held_go_on(side: Side, rng: random.Random) -> None:
    """Some of those that wait get their memory."""
    for held in [one for one in side.core.held if rng.random() < 0.5]:
        if held in side.core.held:
            side.core.held.remove(held)
            side.core.take(held)


@pytest.mark.parametrize("spin", [0, 20])
@pytest.mark.parametrize("seed", range(8))
async def test_random_comings_and_goings(make: Make, at: Addresses, seed: int, spin: int) -> None:
    rng = random.Random(seed)
    side = make(at.nid(1), spin=spin)
    senders = [Sender(at.nid(2 + number)) for number in range(_PEERS)]
    rude = {sender.nid for sender in senders[: _PEERS // 2]}  # only these come to grief

    def on_parse(arrival: Arrival) -> None:
        what = rng.random()
        if what < 0.3:
            side.put(arrival.hdr.src_nid, b"answer" * 100)
        elif what < 0.34:
            victim = rng.choice(list(side.state().peers.values()))
            if str(victim.nid) in rude and victim.conns:
                victim.conns[0].receive_failed(104)
        side.core.hold = rng.random() < 0.2

    def noticed(nid: str) -> bool:
        held_go_on(side, rng)
        return not side.kinds(nid)

    side.core.on_parse = on_parse
    for sender in senders:
        sender.begin(await connect(side, sender.nid))
    for _ in range(100):
        for sender in rng.sample(senders, 8):
            assert sender.raw is not None
            what = rng.random()
            if sender.nid in rude and what < 0.1:
                sender.raw.reset() if what < 0.05 else sender.raw.close()
                await until(partial(noticed, sender.nid))
                sender.begin(await connect(side, sender.nid))
                continue
            if len(sender.out) < 1 << 20:
                sender.speak(side.ni.nid)
            sender.push(rng.choice([1, 50, 97, 5000, 1 << 20]))
            sender.drain()
        if rng.random() < 0.7:
            await asyncio.sleep(0)
        held_go_on(side, rng)
    side.core.on_parse = None
    side.core.hold = False
    polite = [sender for sender in senders if sender.nid not in rude]

    def all_there() -> bool:
        held_go_on(side, rng)
        for sender in polite:
            sender.push(1 << 20)
            sender.drain()
        arrived = Counter(one.hdr.src_nid for one in side.core.arrivals if one.msg not in side.core.open)
        return all(not one.out and arrived[Nid.parse(one.nid)] == one.sent for one in polite)

    await until(all_there)
    whole(side, senders)
    for sender in senders:
        assert sender.raw is not None
        sender.raw.reset()
    await until(lambda: side.lnd.open_connections == 0)

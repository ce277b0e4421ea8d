"""What a simulated node reads: whole messages, one behind the other in one buffer, as from a socket."""

from __future__ import annotations

from collections import Counter

import pytest

from ulnet.core.event import Event
from ulnet.core.md import MANAGE_REMOTE, OP_PUT
from ulnet.core.receiver import Receiver
from ulnet.sim import LinkParams, SimNode, Simulation
from ulnet.wire.lnet import MsgType

LAZY = 31


def pair(seed: int = 1, **link: float | bool) -> tuple[Simulation, SimNode, SimNode]:
    """Two nodes with a connection between them."""
    sim = Simulation(seed, link=LinkParams(**link), trace=True)  # type: ignore[arg-type]
    a, b = sim.node("a", "10.0.0.1@tcp"), sim.node("b", "10.0.0.2@tcp")
    for node in (a, b):
        node.core.set_discovery(0)
    b.attach(30)
    a.put(b.nid, 30, data=b"connect")
    sim.run_until_quiet()
    return sim, a, b


def played(monkeypatch: pytest.MonkeyPatch, seed: int, **link: float | bool) -> tuple[Counter[int], str]:
    """How many messages `deliver` took at a time, of a hundred PUTs in a row; and all that happened."""
    taken: Counter[int] = Counter()
    original = Receiver.deliver

    def deliver(self: Receiver, hdr, raw, buf, view, pos, end):  # type: ignore[no-untyped-def]
        behind = original(self, hdr, raw, buf, view, pos, end)
        taken[(behind - pos) // (len(raw) + hdr.payload_length)] += 1
        return behind

    with monkeypatch.context() as patch:
        patch.setattr(Receiver, "deliver", deliver)
        sim, a, b = pair(seed, **link)
        stream = [a.put(b.nid, 30, data=bytes(100)) for _ in range(100)]
        sim.run_until_quiet()
    assert all(put.ok for put in stream)
    assert b.core.nis[b.nid].stats.received[MsgType.PUT] == 101
    assert a.core.nis[a.nid].stats.received[MsgType.ACK] == 101
    return taken, sim.digest


@pytest.mark.pure
def test_what_has_arrived_is_read_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, digest = played(monkeypatch, 1)
    assert max(taken) > 4
    assert (taken, digest) == played(monkeypatch, 1)
    assert digest != played(monkeypatch, 2)[1]


@pytest.mark.pure
def test_messages_that_overtake_each_other_come_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """InfiniBand has no stream: each message is a completion of its own."""
    assert max(played(monkeypatch, 1, ordered=False)[0]) == 1


def test_what_lies_behind_a_message_that_nobody_takes_waits_in_the_buffer() -> None:
    sim, a, b = pair()
    b.core.memory.set_lazy(LAZY)
    puts = [a.put(b.nid, LAZY if number == 5 else 30, data=bytes(100)) for number in range(10)]
    sim.run(1.0)
    assert [put.ok for put in puts] == [True] * 5 + [False] * 5
    b.attach(LAZY)
    sim.run_until_quiet()
    assert all(put.ok for put in puts)


def test_a_node_that_goes_while_it_reads_takes_nothing_more() -> None:
    sim, a, b = pair()
    seen: list[int] = []

    def handle(event: Event) -> None:
        seen.append(event.hdr_data)
        sim.ledger.arrived(event)
        if len(seen) == 3:
            b.del_ni(b.nid)

    memory = b.core.memory
    memory.md_attach(
        memory.me_attach(40, match_bits=0),
        bytearray(100),
        handle,
        options=OP_PUT | MANAGE_REMOTE,
        threshold=-1,
    )
    puts = [a.put(b.nid, 40, data=bytes(100)) for _ in range(10)]
    sim.run_until_quiet()
    assert len(seen) == 3
    assert all(put.ended for put in puts)
    assert sum(put.ok for put in puts) <= 3


def test_what_has_arrived_is_read_though_its_sender_lost_its_power() -> None:
    sim, a, b = pair()
    b.core.memory.set_lazy(LAZY)
    sim.fabric.lateness = 0.1
    for _ in range(5):
        a.put(b.nid, LAZY, data=bytes(100), ack=False)
    sim.run(1e-3)  # b is late
    a.kill(silent=True)
    sim.run(1.0)
    inbox = b.attach(LAZY)
    sim.run_until_quiet()
    assert len(inbox) == 5

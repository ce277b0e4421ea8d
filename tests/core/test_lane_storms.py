"""All that a lane depends on changes while its messages wait, are under way, come back: none is lost."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from support.lanes import A1, B1, BITS, PORTAL, A, B, FastFabric, World
from ulnet.core.event import Event, EventKind
from ulnet.core.faults import Fault, FaultKind
from ulnet.core.instance import LNet
from ulnet.core.md import Md
from ulnet.core.msg import Msg
from ulnet.core.status import HealthStatus
from ulnet.nid import ANY_NID
from ulnet.wire.lnet import MsgType

_DROPS = Fault(FaultKind.DROP, ANY_NID, ANY_NID, rate=3, health=1 << HealthStatus.LOCAL_DROPPED)
_CHANGES = ("settings", "trace", "health", "peer health", "flags", "rail", "rule", "stall", "restart", "conn")


class Source:
    """Memory that sends, and what became of each of its messages."""

    def __init__(self, storm: Storm, size: int, habit: str) -> None:
        self.storm = storm
        self.habit = habit
        self.data = bytearray(b"s" * size)
        self.told: Counter[EventKind] = Counter()
        self.failed = 0
        self.put = 0
        self.ended = 0
        self.md: Md = storm.world.a.memory.md_bind(self.data, self.handle)

    def send(self, ack: bool, number: int) -> None:
        self.storm.world.put(self.md, B, PORTAL, BITS, ack=ack, hdr_data=number)
        self.put += 1

    def handle(self, event: Event) -> None:
        assert not self.ended, "an event after the last"
        self.told[event.kind] += 1
        self.failed += event.kind is EventKind.SEND and event.status != 0
        self.ended += event.unlinked
        storm = self.storm
        if storm.quiet or event.kind is not EventKind.SEND:
            return
        if self.habit == "sends":
            storm.try_to_send(self)
        elif self.habit == "changes" and storm.chance.random() < 0.1:
            storm.change()
        elif self.habit == "raises":
            raise ValueError("mine")
        elif self.habit == "unlinks" and storm.chance.random() < 0.05:
            storm.world.a.memory.md_unlink(self.md)


class Storm:
    """One world, and the weather."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.world = World(True)
        self.world.warm()
        self.quiet = False
        self.sources: list[Source] = []
        self.rails = False

    def try_to_send(self, source: Source) -> None:
        if source.md.linked and not source.md.aborted:
            source.send(self.chance.random() < 0.5, self.chance.choice([0, 0, 1]))

    def change(self) -> None:
        a, b = self.world.a, self.world.b
        kind = self.chance.choice(_CHANGES)
        pni = a.peers.find_ni(B)
        if kind == "settings":
            a.settings_changed()
        elif kind == "trace":
            a.selector.follow(True)
        elif kind == "health" and A in a.nis:
            a.health.values.set_ni(a.nis[A], self.chance.choice([500, 1000]))
        elif kind == "peer health" and pni is not None:
            a.health.values.set_peer(pni, self.chance.choice([500, 1000]))
        elif kind == "flags" and pni is not None:
            pni.peer.mark()
        elif kind == "rail":
            self.change_rails(a, b)
        elif kind == "rule":
            if self.chance.random() < 0.5:
                a.faults.add(_DROPS)
            else:
                a.faults.delete(FaultKind.DROP)
        elif kind == "stall" and A in a.nis:
            a.path_stalled(a.nis[A], B)
            a.path_moving(a.nis[A], B)
        elif kind == "restart":
            a.peer_restarted(B)
        elif kind == "conn":
            fabric = self.world.fabric
            assert isinstance(fabric, FastFabric)
            fabric.reconnect()

    def change_rails(self, a: LNet, b: LNet) -> None:
        self.rails = not self.rails  # handlers may change them back
        for core, nid in ((a, A1), (b, B1)):
            if self.rails and nid not in core.nis:
                core.add_ni(nid.net, nid)
            elif not self.rails and nid in core.nis:
                core.del_ni(nid)

    def give_back(self) -> None:
        """The driver gives some messages back of which nothing was sent."""
        wire = self.world.fabric.wire
        for ni, msg in list(wire):
            if ni.nid in (A, A1) and msg.sending and self.chance.random() < 0.3:
                wire.remove((ni, msg))
                self.world.a.take_back(msg)

    def is_lost(self, msg: Msg) -> bool:
        return not self.quiet and msg.hdr.type == MsgType.PUT and self.chance.random() < 0.03

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.world.fabric.step(self.is_lost)


@pytest.mark.parametrize("seed", range(60))
def test_each_message_ends_once_and_nothing_is_left(seed: int) -> None:
    storm = Storm(seed)
    chance, fabric, memory = storm.chance, storm.world.fabric, storm.world.a.memory
    for size in (0, 64, 64, 600, 5000):
        habit = chance.choice(["", "", "sends", "changes", "raises", "unlinks"])
        storm.sources.append(Source(storm, size, habit))
    for _ in range(150):
        for _ in range(chance.choice([1, 1, 3, 10])):
            storm.try_to_send(chance.choice(storm.sources))
        storm.steps(chance.choice([0, 1, 3, 20]))
        if chance.random() < 0.15:
            storm.change()
        if chance.random() < 0.05:
            storm.give_back()
        if chance.random() < 0.02:
            fabric.clock.now += 1.0
    storm.quiet = True
    storm.world.a.faults.delete(FaultKind.DROP)
    for _ in range(30):
        fabric.run()
        fabric.clock.now += 10.0  # pauses before they are sent again
    fabric.run()
    for source in storm.sources:
        memory.md_unlink(source.md)
        assert source.ended == 1
        assert source.told[EventKind.SEND] == source.put
        assert source.told[EventKind.ACK] <= source.put
    fabric.assert_conserved()
    assert not [line for line in fabric.complaints if "mine" not in line]
    for source in storm.sources:
        del source.md
        source.data.extend(b"more")  # nobody has a view of it

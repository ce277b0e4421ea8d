"""Random memory at the target, played with inlets and without: the same messages land in the same places."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from support.lanes import A, B, Watching, World, told
from ulnet.core.event import Event
from ulnet.core.md import ACK_DISABLE, MANAGE_REMOTE, MAX_SIZE, OP_GET, OP_PUT, TRUNCATE, Md
from ulnet.core.msg import Msg
from ulnet.core.portal import MatchEntry
from ulnet.core.status import LNetError
from ulnet.nid import LNET_PID, PID_ANY
from ulnet.wire.lnet import MsgType

TARGET = 6
DOOMED = 13  # header data of messages that the network drops

SIZES = (0, 64, 300, 64)


def random_attach(chance: Random) -> tuple[Any, ...]:
    """Memory for some match bits: mostly plain, now and then odd."""
    plain = chance.random() < 0.5
    return (
        "attach",
        chance.choice([0, 0, 0, 1, 2]),  # match bits
        0 if plain else chance.choice([0, 1, 3]),  # ignored ones
        chance.random() < 0.7,  # goes with its memory
        chance.random() < 0.5,  # at the head
        -1 if plain else chance.choice([-1, 1, 2, 3, 9]),  # threshold
        chance.choice(
            [MANAGE_REMOTE, 0]
            if plain
            else [MANAGE_REMOTE | TRUNCATE, TRUNCATE, ACK_DISABLE, MAX_SIZE, OP_GET]
        ),
        4096 if plain else chance.choice([0, 64, 200, 4096]),  # bytes
        "" if plain else chance.choice(["", "", "raises", "unlinks", "detaches", "attaches"]),
        PID_ANY if plain else chance.choice([PID_ANY, LNET_PID, LNET_PID + 1]),
    )


def random_step(chance: Random) -> tuple[Any, ...]:
    """Mostly messages, several alike in a row."""
    kind = chance.choices(
        ["put", "run", "attach", "detach", "unlink", "end", "lazy", "wait"], [50, 20, 8, 3, 3, 1, 2, 2]
    )[0]
    match kind:
        case "put":
            bits = chance.choice([0, 0, 0, 1, 2])
            offset, data = chance.choice([0, 0, 0, 8, 1000]), chance.choice([0] * 8 + [1, DOOMED])
            return "put", chance.randrange(4), chance.random() < 0.5, bits, offset, data, chance.randint(1, 8)
        case "attach":
            return random_attach(chance)
        case "detach" | "unlink":
            return kind, chance.randrange(6)
        case "end":
            return kind, chance.randrange(4)
        case "lazy":
            return kind, chance.random() < 0.3
        case "wait":
            return kind, chance.choice([0.01, 200.0])
    return (kind,)


@dataclass
class Target:
    """Memory that was attached, and what its handler does."""

    world: World
    habit: str
    memory: bytearray
    me: MatchEntry
    seen: list[tuple[Any, ...]] = field(default_factory=list)
    md: Md | None = None

    def __call__(self, event: Event) -> None:
        self.seen.append(told(event))
        memory = self.world.b.memory
        if self.habit == "raises":
            raise ValueError("mine")
        if self.habit == "unlinks" and self.md is not None:
            memory.md_unlink(self.md)
        elif self.habit == "detaches":
            memory.me_unlink(self.me)
        elif self.habit == "attaches":
            self.habit = ""
            me = memory.me_attach(TARGET, match_bits=event.match_bits, at_head=True)
            memory.md_attach(me, bytearray(64), None, options=OP_PUT | MANAGE_REMOTE, threshold=2)


class Play:
    """One program in one world."""

    def __init__(self, lanes: bool, losses: bool) -> None:
        self.world = World(lanes)
        self.losses = losses
        self.world.warm()
        self.targets: list[Target] = []
        for size, threshold in zip(SIZES, (-1, -1, -1, 20), strict=True):
            watching = Watching([])
            self.world.events.append(watching)
            data = (bytes(range(256)) * 2)[:size]
            self.world.mds.append(self.world.a.memory.md_bind(data, watching, threshold=threshold))

    def _is_lost(self, msg: Msg) -> bool:
        return self.losses and msg.hdr.type == MsgType.PUT and msg.hdr.hdr_data == DOOMED

    def run(self) -> None:
        fabric = self.world.fabric
        for _ in range(10_000):
            if not fabric.step(self._is_lost) and not any(core.state.work_pending for core in fabric.cores):
                return
        raise AssertionError("it does not come to rest")

    def step(self, step: tuple[Any, ...]) -> None:
        world, memory = self.world, self.world.b.memory
        match step:
            case ("attach", bits, ignored, goes, head, threshold, options, size, habit, pid):
                me = memory.me_attach(
                    TARGET,
                    match_bits=bits,
                    ignore_bits=ignored,
                    pid=pid,
                    unlink=goes,
                    at_head=head,
                )
                target = Target(world, habit, bytearray(size), me)
                self.targets.append(target)
                options |= 0 if options & OP_GET else OP_PUT
                target.md = memory.md_attach(
                    me,
                    target.memory,
                    target,
                    options=options,
                    threshold=threshold,
                    max_size=size // 2 if options & MAX_SIZE else 0,
                )
            case ("put", which, ack, bits, offset, data, count):
                for _ in range(count):
                    try:
                        world.put(world.mds[which], B, TARGET, bits, ack=ack, offset=offset, hdr_data=data)
                    except LNetError as refusal:
                        world.events[which].seen.append((refusal.errno,))
            case ("run",):
                self.run()
            case ("detach", which) if which < len(self.targets):
                memory.me_unlink(self.targets[which].me)
            case ("unlink", which) if which < len(self.targets):
                md = self.targets[which].md
                if md is not None:
                    memory.md_unlink(md)
            case ("end", which):
                world.a.memory.md_unlink(world.mds[which])
            case ("lazy", lazy):
                memory.set_lazy(TARGET, lazy)
            case ("wait", seconds):
                memory.set_lazy(
                    TARGET, False
                )  # nothing may be left that times out while it waits for its turn
                self.run()
                world.fabric.clock.now += seconds
                self.run()

    def outcome(self) -> dict[str, object]:
        states = [core.peers.find_ni(nid) for core, nid in ((self.world.a, B), (self.world.b, A))]
        return {
            "targets": [(bytes(one.memory), one.seen, one.me.linked) for one in self.targets],
            "left": [
                (md.threshold, md.offset, md.linked, md.refs, md.acks_due)
                for md in [*self.world.mds, *(one.md for one in self.targets if one.md is not None)]
            ],
            "events": [
                (
                    sorted(repr(one[:12]) for one in watching.seen),
                    sum(one[-1] is True for one in watching.seen),
                )
                for watching in self.world.events
            ],
            "counters": self.world.counters(),
            "drops": [core.stats.drops for core in (self.world.a, self.world.b)],
            "states": [(pni.state, pni.health, pni.heard_at) for pni in states if pni is not None],
            "overdue": self.world.a.stats.response_timeout_count,
        }


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("losses", [False, True])
def test_inlets_find_the_memory_that_matching_finds(seed: int, losses: bool) -> None:
    """Batches tell later, so with losses it differs how far others had got by then, and what was counted."""
    chance = Random(seed)
    steps = [random_attach(chance), random_attach(chance), *(random_step(chance) for _ in range(100))]
    outcomes = []
    for lanes in (True, False):
        play = Play(lanes, losses)
        for step in steps:
            play.step(step)
        play.run()
        play.world.b.memory.set_lazy(TARGET, False)  # what waits is dropped
        play.run()
        play.world.fabric.assert_conserved()
        outcomes.append(play.outcome())
    fast, general = outcomes
    for part, expected in general.items():
        if not losses or part not in ("counters", "states"):
            assert fast[part] == expected, part

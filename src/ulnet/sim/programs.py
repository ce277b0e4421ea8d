"""Traffic as programs write it, added to a random plan: awaited calls, bursts, and streams with a window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ulnet.sim.dice import Dice
from ulnet.sim.plan import Plan

__all__ = ["with_programs"]

_LAZY: Final = 31
_SHORT: Final = 32
_CROWDS: Final = 0.15  # of bursts: more operations at once than are kept to be used again
_SLEEPERS: Final = 0.2  # of worlds
_SIZES: Final = (0, 1, 100, 2000, 4096, 20_000, 200_000, 1 << 20)


def with_programs(plan: Plan, sources: Sequence[str], targets: Sequence[str]) -> Plan:
    """The plan, and some programs on `sources`, between its first event and its last, that call `targets`."""
    dice = Dice("programs", plan.seed)
    rng = dice.rng
    times = [event.at for event in plan.events] or [0.0]
    begin, last = min(times), max(times)
    owners = {nid: name for name, node in plan.nodes.items() if node.kind == "node" for nid in node.nids}
    for _ in range(rng.randint(0, 6)):
        at = begin + rng.choice([0.0, 1e-4, 0.01, min(20.0, last - begin)]) * rng.random()
        words: dict[str, Any] = {"from": rng.choice(sources), "to": rng.choice(targets)}
        kind = rng.choice(["put", "get", "ping", "burst", "stream", "stream", "lazy", "short", "explain"])
        size = rng.choice(_SIZES)
        if kind in ("lazy", "short"):
            to = rng.choice(list(owners))
            _special(dice, kind, at, last, {**words, "to": to}, owners[to])
        elif kind == "explain":
            dice.add(at, "explain", **words, size=rng.choice(_SIZES[:4]), burst=rng.choice([2, 5]))
        elif kind == "burst":
            words |= {"size": rng.choice(_SIZES[:5]), "burst": rng.choice([2, 20, 100])}
            words["awaited"] = rng.random() < 0.5
            if rng.random() < _CROWDS:
                words |= {"size": 1, "burst": 300, "awaited": True}
            dice.add(at, rng.choice(["put", "put", "get"]), **words)
        elif kind == "stream":
            words |= {"kind": rng.choice(["put", "put", "get"]), "size": size, "ack": rng.random() < 0.7}
            words |= {
                "count": min(rng.choice([10, 60]), 1 + (4 << 20) // (size + 1)),
                "window": rng.choice([1, 8, 32]),
            }
            dice.add(at, "stream", **words)
        else:
            words |= {
                "awaited": True,
                "count": rng.choice([1, 5, 20]),
                "every": rng.choice([0.0, 1e-4, 0.05]),
            }
            if kind != "ping":
                words["size"] = min(size, 200_000)
            if kind == "put" and rng.random() < 0.3:
                words["ack"] = False
            dice.add(round(at, 9), kind, **words)
    if rng.random() < _SLEEPERS:
        at = begin + rng.choice([0.0, 1e-4, 0.01, min(20.0, last - begin)]) * rng.random()
        dice.add(at, "sleep", node=rng.choice(sources), seconds=rng.choice([0.06, 1.0, 6.0, 60.0]))
    events = sorted([*plan.events, *dice.events], key=lambda event: event.at)
    return msgspec.structs.replace(plan, events=events)


def _special(dice: Dice, kind: str, at: float, last: float, words: dict[str, Any], owner: str) -> None:
    """Messages to a portal where memory comes late, or never; or where there is less than they have."""
    rng = dice.rng
    words |= {"size": rng.choice(_SIZES[1:7]), "count": rng.choice([1, 5]), "every": rng.choice([0.0, 0.01])}
    if kind == "short":
        dice.add(at, "attach", node=owner, portal=_SHORT, size=10)
        dice.add(at, "put", **words, portal=_SHORT)
        return
    dice.add(at, "lazy", node=owner, portal=_LAZY)
    dice.add(at, rng.choice(["put", "put", "get"]), **words, portal=_LAZY)
    if rng.random() < 0.7:
        later = at + rng.choice([1e-3, 1.0, 30.0, 70.0])
        dice.add(later, "attach", node=owner, portal=_LAZY)
        last = max(last, later)
    dice.add(max(last, at), "lazy", node=owner, portal=_LAZY, lazy=False)

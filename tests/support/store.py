"""Two nodes, one of which lends memory to whoever fetches from it."""

from __future__ import annotations

from typing import Any

from support.lanes import BITS, PORTAL, A, B, FastFabric, Watching, World
from ulnet.core.md import MANAGE_REMOTE, OP_GET, Md

STORE = PORTAL + 1
NOWHERE = 99  # match bits that nothing is attached for


class Store(World):
    """B lends memory to whoever fetches; A fetches, by lanes or the general way."""

    def __init__(self, lanes: bool, *, options: int = MANAGE_REMOTE, threshold: int = -1) -> None:
        super().__init__(lanes)
        self.get = self.a.get if lanes else self.a._initiate.get
        self.stock = bytes(range(256)) * 40
        self.fetched = Watching([])
        me = self.b.memory.me_attach(STORE, match_bits=BITS)
        self.lent = self.b.memory.md_attach(
            me, self.stock, self.fetched, options=OP_GET | options, threshold=threshold, max_size=64
        )
        self.warm()
        self.sinks: list[bytearray] = []

    def sink(self, size: int, **more: Any) -> Md:
        watching = Watching([])
        self.events.append(watching)
        self.sinks.append(bytearray(size))
        self.mds.append(self.a.memory.md_bind(self.sinks[-1], watching, **more))
        return self.mds[-1]

    def all_counters(self) -> dict[str, object]:
        found = self.counters()
        for name, core, other in (("a", self.a, B), ("b", self.b, A)):
            pni = core.peers.find_ni(other)
            ni = core.nis[A if core is self.a else B]
            assert pni is not None
            found[f"{name} more"] = (
                *(ni.latency_get.samples, pni.latency_get.samples, pni.answers, core.state.answers),
                dict(core.stats.drops),
            )
        return found


def taken(world: Store) -> int:
    assert isinstance(world.fabric, FastFabric)
    return world.fabric.taken

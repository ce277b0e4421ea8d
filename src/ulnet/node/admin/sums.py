"""Sums over nets and peers, heat and rates (Multi-Rail requirements dbg-070 to dbg-105).

Heat is a sum of messages that decays by half in a minute. It is reckoned when it is asked for, from the
counters: messages since the last time are taken to have come evenly. So nothing is done while nobody asks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from ulnet.control.view import View
from ulnet.core.ni import NI
from ulnet.core.peer import PeerNi
from ulnet.core.stats import Latency, MsgStats
from ulnet.dlc.documents import MsgCounts
from ulnet.dlc.documents_counters import read_counters
from ulnet.dlc.documents_stats import SumView, UseView
from ulnet.dlc.model import SumsShow, UseShow
from ulnet.nid import LO_NID, Nid
from ulnet.node.admin.names import one_nid
from ulnet.node.admin.show_nets import local_net
from ulnet.node.admin.show_peers import peer_of
from ulnet.node.admin.turns import others

__all__ = ["HALF_LIFE", "UseMeter", "reset_nis", "sums"]

HALF_LIFE = 60.0  # seconds
_DECAY = math.log(2) / HALF_LIFE


def sums(core: View, request: SumsShow) -> Iterator[SumView]:
    """Each net's or each peer's, or one's. Raises LNetError: ENOENT, ESRCH, EINVAL."""
    if request.of == "nets":
        for net in list(core.nets) if request.name is None else [local_net(core, request.name)]:
            view = _sum(core.nets[net].nis if net in core.nets else ())
            view.net = str(net)
            yield view
        return
    for peer in list(core.peers) if request.name is None else [peer_of(core, one_nid(request.name))]:
        if peer.gone or (peer.primary_nid == LO_NID and request.name is None):
            continue
        view = _sum(list(peer.nis()))
        view.primary_nid = str(peer.primary_nid)
        yield view


def _sum(nis: Sequence[NI | PeerNi]) -> SumView:
    total = MsgStats()
    for ni in nis:
        for name in ("sent", "received", "dropped"):
            counts, more = getattr(total, name), getattr(ni.stats, name)
            counts[:] = [one + other for one, other in zip(counts, more, strict=True)]
        total.sent_bytes += ni.stats.sent_bytes
        total.received_bytes += ni.stats.received_bytes
    return SumView(
        nis=len(nis),
        send_count=sum(total.sent),
        recv_count=sum(total.received),
        drop_count=sum(total.dropped),
        send_length=total.sent_bytes,
        recv_length=total.received_bytes,
        sent_stats=read_counters(MsgCounts, total.sent),
        received_stats=read_counters(MsgCounts, total.received),
        dropped_stats=read_counters(MsgCounts, total.dropped),
    )


class _Use:
    """One NI's heat at a moment, and its count of messages then."""

    __slots__ = ("at", "count", "heat", "of")

    def __init__(self, of: NI | PeerNi, at: float) -> None:
        self.of = of
        self.at = at
        self.count = 0
        self.heat = 0.0

    def read(self, now: float) -> float:
        """Bring `heat` up to now; the rate since the last time, in messages per second."""
        count = sum(self.of.stats.sent) + sum(self.of.stats.received)
        passed = max(now - self.at, 1e-9)
        rate = max(count - self.count, 0) / passed
        kept = math.exp(-_DECAY * passed)
        self.heat = self.heat * kept + rate * (1 - kept) / _DECAY
        self.at, self.count = now, count
        return rate


class UseMeter:
    """Heat and rates of a node's NIs and peer NIs."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self._known: dict[str, dict[Nid, _Use]] = {"nets": {}, "peers": {}}

    def read(self, core: View, request: UseShow) -> Iterator[UseView | None]:
        """The hottest first; before them None for each NI that was looked at."""
        there: list[NI | PeerNi] = [*(core.nis.values() if request.of == "nets" else core.peers.nis())]
        known = self._known[request.of]
        fresh: dict[Nid, _Use] = {}
        views = []
        for one in there:
            if one.nid == LO_NID:
                continue
            use = fresh[one.nid] = self._use(known, one)
            rate = use.read(self._clock())
            views.append(UseView(str(one.nid), round(use.heat, 3), round(rate, 3), _observed(core, one)))
            yield None
        if self._known[request.of] is known:  # else somebody else has looked, or zeroed all, meanwhile
            self._known[request.of] = fresh  # what is gone is forgotten
        views.sort(key=lambda view: -view.heat)
        yield from views[: request.top or None]

    def forget(self) -> None:
        """Begin anew: the counters were zeroed."""
        self._began = self._clock()
        self._known = {"nets": {}, "peers": {}}

    def _use(self, known: dict[Nid, _Use], one: NI | PeerNi) -> _Use:
        use = known.get(one.nid)
        return use if use is not None and use.of is one else _Use(one, self._began)


def _observed(core: View, one: NI | PeerNi) -> int:
    """Bytes per second over all paths from a local NI, or to a peer NI."""
    if isinstance(one, PeerNi):
        return round(sum(path_load.rate for path_load in one.path_loads.values()))
    return round(sum(peer.path_loads[one].rate for peer in core.peers if one in peer.path_loads))


async def reset_nis(ones: Sequence[NI | PeerNi]) -> None:
    """Zero counters and latencies of NIs and peer NIs; their state (credits, health) stays.

    Others have their turn meanwhile.
    """
    for at, one in enumerate(ones):
        await others(at)
        one.stats.reset()
        one.choices.clear()
        one.latency_egress, one.latency_get, one.latency_ack = Latency(), Latency(), Latency()
        one.health_stats.reset()

"""How busy NIs and paths are, and why they were chosen so far (dbg-035, and the Multi-Rail design)."""

from __future__ import annotations

from msgspec import UNSET

from ulnet.core.ni import NI
from ulnet.core.peer import PeerNi
from ulnet.core.status import HealthStatus
from ulnet.dlc.documents_counters import read_counters
from ulnet.dlc.documents_load import NiLoad, PathLoad, PeerNiLoad

__all__ = ["load_of_ni", "load_of_peer_ni"]


def load_of_ni(ni: NI) -> NiLoad:
    """`load:` of `net show --load`."""
    waiting = sum(len(queue.waiting) for queue in ni.tx_queues)
    credits = (ni.max_tx_credits, ni.tx_credits, ni.min_tx_credits, waiting)
    events = (ni.health_stats.down_events, ni.health_stats.up_events)
    state = ni.state.value
    others = (*credits, _choices(ni), state, *events, _resends(ni), dict(ni.degraded) or UNSET)
    return read_counters(NiLoad, ni, *others)


def load_of_peer_ni(pni: PeerNi) -> PeerNiLoad:
    """`load:` of `peer show --load`."""
    paths = {
        str(ni.nid): PathLoad(path_load.outstanding, round(path_load.rate))
        for ni, path_load in pni.path_loads.items()
    }
    failed = dict(sorted(pni.health_stats.connects.items()))
    others = (len(pni.tx_queue), _choices(pni), paths, pni.state.value, _resends(pni), failed or UNSET)
    return read_counters(PeerNiLoad, pni, *others)


def _resends(one: NI | PeerNi) -> dict[str, int]:
    counts = zip(HealthStatus, one.health_stats.resends, strict=True)
    return {status.name.lower(): count for status, count in counts if count}


def _choices(one: NI | PeerNi) -> dict[str, int]:
    """The most frequent first."""
    return dict(sorted(one.choices.items(), key=lambda item: -item[1]))

"""The choice for a message that failed: a pair not tried yet, while one is left (documents, snd-050).

"Not tried" comes before health: a message is undeliverable only when every path has been tried. Among
those left, the criteria of every choice decide, in their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ulnet.core.ni import NI, LocalNet
from ulnet.core.peer import PeerNi
from ulnet.core.selection.criteria import (
    CREDITS,
    LOCAL_EXPECTED,
    LOCAL_FIXED,
    NET_FIXED,
    PEER_EXPECTED,
    PEER_FIXED,
    TURN,
    narrow,
)
from ulnet.core.selection.paths import NetPair, Query
from ulnet.nid import Net, Nid

__all__ = ["choose_untried"]


def choose_untried(
    nets: Mapping[Net, LocalNet],
    targets: Iterable[PeerNi],
    query: Query,
    source: Nid | None,
    tried: Sequence[tuple[NI, PeerNi]],
) -> tuple[NI, PeerNi] | None:
    """The pair for another attempt to one of `targets`, from `source` if that is given; None without any."""
    pairs = [
        (ni, pni)
        for pni in targets
        if pni.nid.net in nets
        for ni in nets[pni.nid.net].nis
        if ni.active and source in (None, ni.nid)
    ]
    if not pairs:
        return None
    usable = [pair for pair in pairs if pair[0].open and not pair[0].fatal] or pairs
    left = [pair for pair in usable if pair not in tried] or usable
    both = [NetPair(local, query.peer.nets[local.net]) for local in dict.fromkeys(ni.net for ni, _ in left)]
    best = {net.local for net in narrow(both, NET_FIXED, query)[0]}
    locals_left = list(dict.fromkeys(ni for ni, _ in left if ni.net in best))
    query.cached = None
    chosen: NI = narrow(locals_left, (*LOCAL_FIXED, LOCAL_EXPECTED, CREDITS, TURN), query)[0][0]
    query.ni = chosen
    remotes_left = [pni for ni, pni in left if ni is chosen]
    pni: PeerNi = narrow(remotes_left, (*PEER_FIXED, PEER_EXPECTED, CREDITS, TURN), query)[0][0]
    return chosen, pni

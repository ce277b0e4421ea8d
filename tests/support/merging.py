"""A peer made what it lists, in one step."""

from __future__ import annotations

from collections.abc import Iterable

from ulnet.control.discovery.claims import Claims
from ulnet.core.peer import Peer
from ulnet.core.peer_table import PeerTable
from ulnet.nid import Nid


def merge(table: PeerTable, peer: Peer, primary: Nid, nids: Iterable[Nid]) -> dict[Nid, int]:
    """Those NIDs and no others, under that primary NID; which ones a rule kept, with its errno."""
    listed = dict.fromkeys((primary, *nids))
    claims = Claims(table, {}, lambda peer: False, lambda net: (), lambda net: (), lambda peer, net: False)
    return claims.grant(peer, primary, listed, listed) | table.keep_only(peer, listed)

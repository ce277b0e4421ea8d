"""Peers as files give them: a list of NIDs replaces the one before (Multi-Rail design, Adding Peer NID)."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from ulnet.control.instance import LNet
from ulnet.core.peer import Peer, PeerFlag, may_be_peer
from ulnet.core.peer_rules import not_of_others
from ulnet.core.status import LNetError
from ulnet.dlc.errors import ErrorItem
from ulnet.dlc.model import PeerRefresh, PeerRemove
from ulnet.dlc.protocol import Answer
from ulnet.nid import Nid, NidError, NidList
from ulnet.node.admin.names import MANY, MOST_TEXT, must_be_few, one_nid
from ulnet.node.admin.peers import check_count

__all__ = ["refresh_peer", "remove_nids"]
_WAY_OUT = "a configured peer has far fewer; leave some out"


class _Listed:
    """The NIDs of a request, and what is wrong with some, by their index. Raises LNetError(ERANGE)."""

    def __init__(self, request: PeerRefresh | PeerRemove) -> None:
        self._request = request
        self._noted: list[tuple[int, ErrorItem]] = []
        self.nids: dict[Nid, int] = {}
        count = len(request.nids)
        must_be_few(count, "NIDs", way_out=_WAY_OUT)
        must_be_few(sum(map(len, request.nids)), "characters of NIDs", MOST_TEXT, way_out=_WAY_OUT)
        for index, text in enumerate(request.nids):
            try:
                nids = NidList.parse(text).expand(MANY)
            except NidError as bad:
                self._note(index, errno.EINVAL, str(bad))
                continue
            count += len(nids) - 1
            must_be_few(count, "NIDs", way_out=_WAY_OUT)
            for nid in nids:
                self.nids.setdefault(nid, index)

    def refuse(self, nid: Nid, number: int, text: str) -> None:
        """Leave a NID out."""
        self._note(self.nids.pop(nid), number, text)

    def _note(self, index: int, number: int, text: str) -> None:
        request = self._request
        self._noted.append((index, ErrorItem(request.verb, request.entity, -number, f"NID {index}: {text}")))

    @property
    def errors(self) -> list[ErrorItem]:
        """In the order of the list."""
        return [item for _, item in sorted(self._noted, key=lambda noted: noted[0])]


def refresh_peer(core: LNet, request: PeerRefresh) -> Answer:
    """Make the list the peer's NIDs; what was wrong with some of them. Raises LNetError, nothing changed."""
    listed = _Listed(request)
    known = _known(core, request, listed)
    primary = _primary(request, known, listed)
    multi_rail = request.multi_rail
    if multi_rail is None:
        multi_rail = known is None or known.multi_rail
    elif known is not None and known.multi_rail != multi_rail:
        kind = "Multi-Rail" if known.multi_rail else "not Multi-Rail"
        raise LNetError(
            errno.EPERM, f"peer {primary} is configured as {kind}: delete it first to change that"
        )
    _leave_out(core, listed, primary, known, multi_rail)
    others = [nid for nid in listed.nids if nid != primary]
    check_count(primary, {primary, *others})
    lock = request.lock_primary
    if known is None:
        core.peers.add(primary, others, multi_rail, lock)
        return Answer(errors=listed.errors)
    before = _Remembered(known)
    if known.primary_nid != primary:
        core.peers.delete(known.primary_nid, force=True)
    else:
        gone = [nid for nid in known.nids() if nid != primary and nid not in listed.nids]
        if gone:
            core.peers.delete(primary, gone)
    try:
        core.peers.add(primary, others, multi_rail, lock or before.locked)
    except LNetError:
        before.restore(core)
        raise
    return Answer(errors=listed.errors)


class _Remembered:
    """A configured peer as it is."""

    def __init__(self, peer: Peer) -> None:
        self.primary = peer.primary_nid
        self.nids = list(peer.nids())
        self.multi_rail = peer.multi_rail
        self.locked = bool(peer.flags & PeerFlag.LOCK_PRIMARY)

    def restore(self, core: LNet) -> None:
        core.peers.add(self.primary, self.nids, self.multi_rail, self.locked)


def _known(core: LNet, request: PeerRefresh, listed: _Listed) -> Peer | None:
    """The configured peer that the request is about, if there is one."""
    names = [one_nid(request.primary)] if request.primary is not None else list(listed.nids)
    for nid in names:
        peer = core.peers.find(nid)
        if peer is not None and peer.configured:
            return peer
    return None


def _primary(request: PeerRefresh, known: Peer | None, listed: _Listed) -> Nid:
    if request.primary is not None:
        primary = one_nid(request.primary)
        if known is not None and known.primary_nid != primary:
            raise LNetError(
                errno.EEXIST,
                f"{primary} belongs to the configured peer {known.primary_nid}: "
                "use that primary NID, or delete that peer first",
            )
        return primary
    if not listed.nids:
        raise LNetError(errno.EINVAL, "no NID of the list can name a peer: write one, such as 10.0.0.2@tcp")
    if known is not None and known.primary_nid in listed.nids:
        return known.primary_nid
    return next(iter(listed.nids))


def _leave_out(core: LNet, listed: _Listed, primary: Nid, known: Peer | None, multi_rail: bool) -> None:
    """Refuse the NIDs that the peer cannot have."""
    nets = {primary.net}
    for nid in list(listed.nids):
        other = core.peers.find(nid)
        if not may_be_peer(nid):
            if nid != primary:
                text = f"{nid} cannot name a peer: give the NID of one interface"
                listed.refuse(nid, errno.EINVAL, text)
        elif core.peers.ours(nid):
            if nid != primary:
                listed.refuse(nid, errno.EADDRINUSE, not_of_others(primary, nid))
        elif other is not None and other is not known and other.configured:
            text = f"{nid} belongs to the configured peer {other.primary_nid}: delete it there first"
            listed.refuse(nid, errno.EEXIST, text)
        elif nid != primary and not multi_rail and nid.net in nets:
            text = f"{nid} would be a second NID on {nid.net}, and peer {primary} is not Multi-Rail"
            listed.refuse(nid, errno.ENOTUNIQ, text)
        else:
            nets.add(nid.net)


def remove_nids(core: LNet, request: PeerRemove) -> Answer:
    """Take NIDs from a peer; what was wrong with some of them. Raises LNetError, nothing changed."""
    listed = _Listed(request)
    peer = _owner(core, request, listed)
    if request.primary is not None and peer.primary_nid != (primary := one_nid(request.primary)):
        raise LNetError(
            errno.ENODEV,
            f"{primary} is not the primary NID of its peer: that is {peer.primary_nid}; use it instead",
        )
    for nid in list(listed.nids):
        other = core.peers.find(nid)
        if other is None:
            listed.refuse(nid, errno.ENOENT, f"peer {peer.primary_nid} has no NID {nid}")
        elif other is not peer:
            listed.refuse(nid, errno.ECHILD, f"{nid} belongs to peer {other.primary_nid}")
    left = [nid for nid in peer.nids() if nid not in listed.nids]
    if peer.primary_nid not in listed.nids:
        if listed.nids:
            core.peers.delete(peer.primary_nid, list(listed.nids))
    else:
        _remove_primary(core, peer, left if request.primary is None else [])
    return Answer(errors=listed.errors)


def _remove_primary(core: LNet, peer: Peer, left: Sequence[Nid]) -> None:
    """Delete a peer, or make it anew of the NIDs that are left."""
    before = _Remembered(peer)
    core.peers.delete(peer.primary_nid, force=bool(left))
    if left:
        try:
            core.peers.add(left[0], left[1:], before.multi_rail, before.locked)
        except LNetError:
            before.restore(core)
            raise


def _owner(core: LNet, request: PeerRemove, listed: _Listed) -> Peer:
    names = [one_nid(request.primary)] if request.primary is not None else list(listed.nids)
    for nid in names:
        peer = core.peers.find(nid)
        if peer is not None:
            return peer
    what = request.primary or ", ".join(request.nids[:4])
    raise LNetError(errno.ENOENT, f"no peer has the NID {what}: see 'lnetctl peer show'")

"""Values of NIs and peer NIs set by hand, and the recovery queues (spec health.md §6)."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence

import msgspec

from ulnet.control.instance import LNet
from ulnet.control.meter import Meter
from ulnet.control.view import View
from ulnet.core.ni import NI
from ulnet.core.peer import PeerNi
from ulnet.core.status import LNetError
from ulnet.dlc.documents_health import RecoveryDocument
from ulnet.dlc.model_health import NetSet, PeerDebug, PeerSet, RecoveryShow
from ulnet.dlc.tunables import TUNABLES
from ulnet.nid import LO_NID, Net, NetType, Nid, NidError
from ulnet.node.admin.names import read_cpts, read_nids
from ulnet.node.admin.tunables import live_tunables
from ulnet.node.admin.turns import others

__all__ = ["debug_peer", "set_nis", "set_peers", "show_recovery"]


def set_nis(core: LNet, request: NetSet) -> list[NI]:
    """Change NIs, or a driver's time-out: all of it or nothing; which NIs. To drain them is left to others.

    Raises LNetError: EINVAL, ENOENT, ERANGE.
    """
    if request.net is not None or request.lnd_timeout is not None:
        _set_lnd_timeout(core, request)
        return []
    if request.all == bool(request.nids):
        raise LNetError(errno.EINVAL, "say which NIs are meant: either --nid NID, or --all")
    if not (request.cpts or request.tunables) and (request.health, request.drain) == (None, None):
        raise LNetError(
            errno.EINVAL,
            "nothing is to be set: give --health 0..1000, --conns-per-peer 0..127, --cpt [0,1] or --drain",
        )
    cpts = read_cpts(request.cpts, core.cpts.count) if request.cpts else None
    given = live_tunables(request.tunables)
    nids = [nid for nid in core.nis if nid != LO_NID] if request.all else read_nids(request.nids)
    nis = [_ni(core, nid) for nid in nids]
    _retune_all(core, nis, given)
    for ni in nis:
        if request.cpts:
            core.set_cpts(ni.nid, cpts)
        if request.health is not None:
            core.health.values.set_ni(ni, request.health)
    return nis


def _retune_all(core: LNet, nis: Sequence[NI], given: Mapping[str, int]) -> None:
    """All of them, or none. Raises LNetError."""
    before = [
        {name: getattr(ni.lnd_tunables if TUNABLES[name].driver else ni.tunables, name, 0) for name in given}
        for ni in nis
    ]
    try:
        for ni in nis:
            _retune(core, ni, given)
    except LNetError:
        for ni, values in zip(nis, before, strict=True):
            _retune(core, ni, values)
        raise


def _retune(core: LNet, ni: NI, given: Mapping[str, int]) -> None:
    for name, value in given.items():
        if not TUNABLES[name].driver:
            for tunables in [ni.net.tunables, *(one.tunables for one in ni.net.nis)]:
                setattr(tunables, name, value)
        elif ni.lnd_tunables is not None:
            setattr(ni.lnd_tunables, name, value)
    if given:
        core.retune(ni)


def _ni(core: LNet, nid: Nid) -> NI:
    ni = core.nis.get(nid)
    if ni is None:
        raise LNetError(errno.ENOENT, f"{nid} is not one of this node's NIDs: see 'lnetctl net show'")
    if nid == LO_NID:
        raise LNetError(errno.EINVAL, "0@lo is always well and has all CPTs: name another NI")
    return ni


def _set_lnd_timeout(core: LNet, request: NetSet) -> None:
    if request.net is None or request.lnd_timeout is None:
        raise LNetError(
            errno.EINVAL,
            "--net and --lnd-timeout go together: such as --net tcp --lnd-timeout 20; "
            "for anything else name NIs by --nid, or --all",
        )
    if msgspec.structs.replace(request, net=None, lnd_timeout=None) != NetSet():
        raise LNetError(
            errno.EINVAL, "an LND time-out is one for all NIs of a net type: give --net alone with it"
        )
    try:
        kind = Net.parse(request.net).type  # of `tcp1` too: the time-out is that of the LND
    except NidError:
        kind = NetType.LO
    if kind == NetType.LO:
        raise LNetError(errno.EINVAL, f"{request.net!r} is no net with time-outs: write tcp")
    nis = [ni for ni in core.nis.values() if ni.net.net.type == kind]
    if not nis:
        raise LNetError(errno.ENOENT, f"this node has no {request.net} net: add one first")
    for ni in nis:
        if ni.lnd_tunables is not None:
            ni.lnd_tunables.timeout = request.lnd_timeout
            core.retune(ni)


def set_peers(core: LNet, request: PeerSet) -> None:
    """Change peer NIs: all of them or none. Raises LNetError: EINVAL, ENOENT."""
    if request.all == bool(request.nids):
        raise LNetError(errno.EINVAL, "say which peer NIs are meant: either --nid NID, or --all")
    if request.health is None:
        raise LNetError(errno.EINVAL, "nothing is to be set: give --health 0..1000")
    found = _all_peers(core) if request.all else [_peer_ni(core, nid) for nid in read_nids(request.nids)]
    for pni in found:
        core.health.values.set_peer(pni, request.health)


def _all_peers(core: LNet) -> list[PeerNi]:
    return [pni for pni in core.peers.nis() if pni.nid != LO_NID]


def _peer_ni(core: LNet, nid: Nid) -> PeerNi:
    pni = core.peers.find_ni(nid)
    if pni is None or nid == LO_NID:
        raise LNetError(errno.ENOENT, f"no peer has the NID {nid}: see 'lnetctl peer show'")
    return pni


def show_recovery(core: View, request: RecoveryShow) -> RecoveryDocument:
    """`debug recovery`. Raises LNetError(EINVAL)."""
    if not (request.local or request.peer):
        raise LNetError(errno.EINVAL, "say whose recovery is meant: --local or --peer")
    document = RecoveryDocument()
    if request.local:
        document.local = _numbered([ni.nid for ni in core.health.recovery.local.patients()])
    if request.peer:
        document.peers = _numbered([pni.nid for pni in core.health.recovery.peers.patients()])
    return document


def _numbered(nids: Sequence[Nid]) -> dict[str, str]:
    return {f"nid-{place}": str(nid) for place, nid in enumerate(nids)}


async def debug_peer(core: LNet, request: PeerDebug) -> None:
    """One line a NID into the node's log. Raises LNetError: EINVAL, ENOENT.

    Others have their turn between them: a peer may have thousands.
    """
    (nid, *more) = read_nids([request.nid])
    if more:
        raise LNetError(errno.EINVAL, f"{request.nid}: give one NID")
    peer = _peer_ni(core, nid).peer
    report = core.report
    report(f"peer {peer.primary_nid}: {peer.state.value}, flags {peer.flags:#x}")
    for at, pni in enumerate(list(peer.nis())):
        await others(at)
        report(
            f"peer NI {pni.nid}: {pni.state.value}, health {pni.health}, {pni.refs} references, "
            f"{pni.tx_credits} of {pni.max_tx_credits} credits, {len(pni.tx_queue)} messages wait"
        )
    for ni, path_load in list(peer.path_loads.items()):
        best = path_load.best if isinstance(path_load, Meter) else 0.0
        report(
            f"from {ni.nid} ({ni.state.value}): {path_load.outstanding} bytes under way, "
            f"{path_load.rate / 1e6:.3g} MB/s as measured, {best / 1e6:.3g} MB/s at best"
        )

"""Paths without progress: their driver sees it long before its time-outs say so."""

from __future__ import annotations

from ulnet.core.lines import Line
from ulnet.core.ni import NI
from ulnet.core.notices import Notices
from ulnet.core.path_load import PathLoad
from ulnet.core.peer import PeerNi
from ulnet.core.sender import Sender
from ulnet.core.state import NodeState
from ulnet.nid import Nid

__all__ = ["Paths"]


class Paths:
    """Marks paths that the selection avoids while others make progress (its criterion "progress").

    The sender moves the messages that wait for credits of such a path, and looks after those that have left.
    """

    __slots__ = ("_notices", "_sender", "_state")

    def __init__(self, state: NodeState, notices: Notices, sender: Sender) -> None:
        self._state = state
        self._notices = notices
        self._sender = sender

    def stalled(self, ni: NI, nid: Nid) -> None:
        """The driver sees no progress from ni to the next hop nid."""
        pni = self._change(ni, nid, True)
        if pni is not None:
            self._sender.credits.leave(ni, pni)
            self._sender.guard.lost(ni, nid)

    def moving(self, ni: NI, nid: Nid) -> None:
        """A path makes progress again, or its connections are gone."""
        self._change(ni, nid, False)

    def _change(self, ni: NI, nid: Nid, stalled: bool) -> PeerNi | None:
        """The peer NI, where there may be other paths for what goes to it."""
        pni = self._state.peers.find_ni(nid)
        if pni is None:
            return None
        path_load = pni.path_loads.get(ni)
        if (
            path_load is None and stalled and ni.active
        ):  # nothing was counted there yet: a peer is asked first who it is
            path_load = pni.path_loads[ni] = PathLoad(pni.peer.rates)
        if path_load is None or path_load.stalled == stalled:
            return None
        path_load.stalled = stalled
        self._state.ways_changed(pni.peer, "a path stalls, or moves again")
        masters = self._state.masters
        if pni.peer.multi_rail or any(one.owns(ni) for one in masters.values()):
            word = "no progress: other paths are preferred" if stalled else "it is not avoided any more"
            event = "path.stalled" if stalled else "path.moves"
            line = Line(event, f"path {ni.nid} -> {nid}: {word}", source=ni.nid, to=nid)
            self._notices.say(("path", ni.nid, nid, stalled), line)
        # A master may have passed on what is there before it gave that slave up.
        return pni if pni.peer.multi_rail or masters else None

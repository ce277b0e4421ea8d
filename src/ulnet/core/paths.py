"""Finds paths: on a local net by the selection, elsewhere over gateways; for sending and for explaining."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from ulnet.core.msg import ANSWERS, Msg
from ulnet.core.ni import NI
from ulnet.core.path import Path, load_of
from ulnet.core.peer import PeerNi
from ulnet.core.routing.choose import RoutedSelector
from ulnet.core.routing.table import Route
from ulnet.core.selection import Explanation, Selector
from ulnet.core.selection.paths import Key, PathSet
from ulnet.core.state import NodeState
from ulnet.core.status import LNetError
from ulnet.nid import LNET_PID, LO_NID, Nid
from ulnet.wire.lnet import PING_PORTAL, MsgType

if TYPE_CHECKING:
    from ulnet.core.parts import Parts

__all__ = ["PathFinder"]

_PUT: Final = int(MsgType.PUT)
_SHOWN: Final = 4


class PathFinder:
    """The paths of one node's messages."""

    __slots__ = ("_parts", "_routed", "_state", "selector")

    def __init__(self, state: NodeState, selector: Selector, routed: RoutedSelector, parts: Parts) -> None:
        self._state = state
        self._parts = parts
        self.selector: Selector = selector
        self._routed = routed

    def find(self, dest: PeerNi, key: Key) -> PathSet:
        """The paths to a NID, which may have to be filled."""
        return self.selector.find(dest, key)

    def of(self, msg: Msg, dest: PeerNi) -> PathSet:
        """The paths for a message."""
        template = msg.template
        kind = template.type
        bound = kind in ANSWERS or msg.exact
        ping = template.portal == PING_PORTAL and kind not in ANSWERS
        key = Key(kind, msg.source, bound, ping, msg.via, template.dest_pid, msg.cpt)
        return self.selector.find(dest, key)

    def is_valid(self, paths: PathSet) -> bool:
        """Whether what was decided still holds."""
        return self.selector.is_valid(paths)

    def fill(self, paths: PathSet) -> None:
        """Decide what stays true until the next generation. Raises LNetError: EINVAL, EHOSTUNREACH."""
        dest, key = paths.dest, paths.key
        if self._over_gateway(dest, key):
            paths.clear()
            paths.routed = True
            paths.settled = dest.peer.settled
            paths.generation = dest.peer.generation
            paths.stamp = self._state.generation.number + dest.peer.generation.number
        else:
            self.selector.fill(paths)

    def _over_gateway(self, dest: PeerNi, key: Key) -> bool:
        routed = self._routed
        return routed.has_routes and dest.nid != LO_NID and routed.needed(dest, key.source, key.bound)

    def pick(self, paths: PathSet, size: int) -> Path:
        """The path of a message of that load. Raises LNetError(EHOSTUNREACH) where no gateway serves."""
        if paths.routed:
            return self._pick_routed(paths, size, ())
        return self.selector.pick(paths, size)

    def _pick_routed(
        self, paths: PathSet, size: int, tried: tuple[tuple[NI, PeerNi], ...], free: bool = False
    ) -> Path:
        key = paths.key
        self._parts.uncork()
        found = self._routed.choose(
            paths.dest,
            source=None if free else key.source,
            bound=key.bound and not free,
            ping=key.ping,
            via=None if free else key.via,
            size=size,
            cpt=key.cpt,
            tried=tried,
        )
        path = self.selector.path(paths, found.ni, found.peer_ni, found.final)
        path.ni_by, path.peer_ni_by = found.ni_by, found.peer_ni_by
        path.route = found.route
        return path

    def pick_again(self, msg: Msg, paths: PathSet) -> Path:
        """The path of a message that failed, or of an answer whose NI is gone. Raises LNetError.

        An answer may leave from any NI, to any NID of its peer. Where all paths that need no gateway were
        tried, a gateway is.
        """
        attempts = msg.attempts
        tried = () if attempts is None else tuple(attempts.tried)
        answer = msg.template.type in ANSWERS
        size = load_of(msg.template)
        if self._over_gateway(paths.dest, paths.key):
            return self._pick_routed(paths, size, tried, free=answer)
        if not paths.dest.peer.multi_rail and not answer:
            self.selector.fill(paths)
            return self.selector.pick(paths, size)
        peer = paths.dest.peer
        source = None if answer else msg.source
        free = source is None and not msg.exact
        if free and self._routed.has_way(peer) and self.selector.has_tried_all(peer, tried):
            return self._pick_routed(paths, size, tried, free=answer)
        return self.selector.pick_untried(paths, source, tried, size)

    def asks_first(self, final: PeerNi) -> bool:
        """Whether the gateway to `final` must be known before something is sent over it."""
        return self._routed.asks_first(final)

    def took_route(self, path: Path, count: int) -> None:
        """Count messages that go by a path over a gateway."""
        route = path.route
        self._routed.took(path.final, route if isinstance(route, Route) else None, count)

    def hop(self, kind: int, ni: NI, pni: PeerNi, pid: int) -> Path:
        """From an NI to a next hop, for messages whose headers are another's."""
        key = Key(kind, ni.nid, via=pni.nid, pid=pid)  # no message that is sent by its destination has that
        paths = self.selector.find(pni, key)
        path = paths.paths.get((ni, pni, pni))
        if path is None or path.queue not in ni.tx_queues:
            path = paths.paths[ni, pni, pni] = Path(kind, ni, pni, pni, pid, ni.queue_for(pni.nid), hop=True)
        return path

    def explain(self, dest: PeerNi, source: Nid | None, size: int, cpt: int, record: Explanation) -> None:
        """The choice for a request, with its reasons. Raises LNetError where the request would fail."""
        key = Key(_PUT, source, pid=LNET_PID, cpt=cpt)
        if self._over_gateway(dest, key):
            found = self._routed.choose(dest, source=source, size=size, cpt=cpt, record=record)
            record.ni, record.peer_ni, record.final = found.ni, found.peer_ni, found.final
        else:
            path = self.selector.choose(dest, key, size, record)
            record.ni, record.peer_ni = path.ni, path.peer_ni
        if record.ni.fatal:
            raise self.down(dest, key, record.ni, record.peer_ni)

    def down(self, dest: PeerNi, key: Key, ni: NI, hop: PeerNi) -> LNetError:
        """What to tell of requests to `dest`, for which no better way than from `ni` to `hop` is left.

        The device of `ni` failed. What is asked for in that state fails; what was taken before waits.
        """
        if key.source is not None:
            text = f"source NID {ni.nid} is down: its device failed; leave the source out, or mend the device"
        elif not (dest.peer.multi_rail or key.ping) and (
            ni.nid == dest.preferred or ni.nid in dest.preferred_nids
        ):
            text = (
                f"{dest.nid} is a peer without Multi-Rail, which hears from {ni.nid} only: that is down; "
                "mend its device, or delete it, and the peer hears from another NI"
            )
        else:
            nets = [self._state.nets[net] for net in hop.peer.nets if net in self._state.nets]
            nids = [str(one.nid) for net in nets for one in net.nis]
            more = f" and {len(nids) - _SHOWN} others" if len(nids) > _SHOWN else ""
            text = (
                f"no NI on the way to {dest.nid} is up: {', '.join(nids[:_SHOWN])}{more}; "
                "mend a device, or add an NI"
            )
        return LNetError(errno.ENETDOWN, text)

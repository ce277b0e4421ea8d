"""What the parts of one LNet call of each other, where each needs the other.

Who can be made behind a part that it needs gets that part itself. For the others there is one object, which
the instance fills when all are there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ulnet.core.lnd import Payload
    from ulnet.core.md import Md
    from ulnet.core.msg import Incoming, Msg
    from ulnet.core.ni import NI
    from ulnet.core.path_load import PathLoad
    from ulnet.core.peer import Peer, PeerNi
    from ulnet.core.portal import Portal
    from ulnet.core.status import HealthStatus
    from ulnet.nid import Net, Nid
    from ulnet.wire.lnet import Header
    from ulnet.wire.ping import PingInfo

__all__ = ["Parts"]


class Parts:
    """Calls between parts, by the part that answers; each is described where it is defined."""

    __slots__ = (
        "allows",
        "broken",
        "certified",
        "check_gateway",
        "completed",
        "drop_delayed",
        "end",
        "expire",
        "fail",
        "failed",
        "forward",
        "has_path_beside",
        "heard",
        "hold",
        "last_hop",
        "leads_over",
        "lost_behind",
        "match_delayed",
        "may_wait",
        "moved",
        "needed_for",
        "net_reached",
        "overdue",
        "passed_on",
        "path_load",
        "peer_deprived",
        "peer_learned",
        "peer_ni_added",
        "peer_ni_gone",
        "peer_removed",
        "pinged",
        "posted",
        "push_refused",
        "pushed",
        "received",
        "relay",
        "resend",
        "router_credits",
        "send_again",
        "sent",
        "set_out_anew",
        "switched",
        "taken",
        "uncork",
    )

    # Sender
    fail: Callable[[Msg, int, str], None]
    set_out_anew: Callable[[Msg], None]
    uncork: Callable[[], None]  # before anybody looks at counts: what waits in the cork is sent

    # Completion
    completed: Callable[[list[Msg], HealthStatus, int, str], None]
    end: Callable[[Msg, HealthStatus, int, str], None]

    # Delayed
    match_delayed: Callable[[Portal], None]
    drop_delayed: Callable[[Incoming, str], None]
    may_wait: Callable[[Portal, Header, Nid], bool]

    # Memory
    expire: Callable[[Md, int], None]

    # ReservedBuffers
    taken: Callable[[Incoming], None]

    # Discovery
    hold: Callable[[Msg, Peer], bool]
    pushed: Callable[[Nid, PingInfo | None, Nid], None]
    push_refused: Callable[[Peer], None]
    peer_learned: Callable[[Peer], None]
    peer_removed: Callable[[Peer], None]
    net_reached: Callable[[Net], None]
    peer_deprived: Callable[[Peer], None]
    certified: Callable[[PeerNi, Callable[[Nid], bool] | None], None]

    # Health
    posted: Callable[[PeerNi], None]
    sent: Callable[[NI, PeerNi], None]
    heard: Callable[[NI, PeerNi], None]
    failed: Callable[[Msg, HealthStatus, int, str], bool]
    broken: Callable[[NI, Nid, HealthStatus], None]
    overdue: Callable[[Md], None]
    switched: Callable[[Msg, NI, PeerNi], None]
    moved: Callable[[Msg, NI, PeerNi], None]
    peer_ni_gone: Callable[[PeerNi], None]
    path_load: Callable[[NI, Peer], PathLoad]
    resend: Callable[[Msg], None]
    send_again: Callable[[Msg], None]
    allows: Callable[[Msg, NI, PeerNi], bool]
    has_path_beside: Callable[[Msg, NI, PeerNi], bool]

    # Policies
    peer_ni_added: Callable[[PeerNi], None]

    # Gateways
    needed_for: Callable[[Peer], str]
    router_credits: Callable[[Net], int]

    # Routing
    forward: Callable[[NI, Header, Nid, Payload], None]
    received: Callable[[Incoming, HealthStatus], None]
    relay: Callable[[Msg], None]
    passed_on: Callable[[Msg, HealthStatus], None]
    last_hop: Callable[[NI, Header, Nid], PeerNi | str]
    leads_over: Callable[[Nid, Net], bool]
    check_gateway: Callable[[Nid, Net], None]
    lost_behind: Callable[[Nid, Collection[Net] | None], None]
    pinged: Callable[[Nid], None]

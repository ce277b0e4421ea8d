"""Lines for the log that programs can read, too: each has the stable name of its event."""

from __future__ import annotations

from typing import Final, Self

from ulnet.nid.errors import escaped

__all__ = ["EVENTS", "Line", "longer"]

# What each name means; what else a line is about stands beside it, under the names in brackets.
EVENTS: Final = {
    "daemon.ready": "lnetd is ready (socket)",
    "daemon.stopping": "lnetd lets what is under way finish",
    "daemon.stopped": "lnetd has ended",
    "daemon.refused": "lnetd could not start",
    "daemon.metrics": "metrics are served (address, port)",
    "config.note": "something about the start-up options or files",
    "control.refused": "a user who may not do that asked over the control socket",
    "control.changed": "a request changed something (user, uid, pid, request, changed, refused)",
    "control.failed": "a request failed by a mistake in ulnet",
    "ni.state": "a local NI failed, is degraded, or is good again (nid, state)",
    "ni.down": "the health of a local NI fell to 0: peers are told that it is down (nid)",
    "ni.up": "its health is full again: peers are told that it is up (nid)",
    "net.state": "all NIs of a net failed, or one can be used again (net, state)",
    "interface.down": "the device of an NI failed (nid, interface, why)",
    "interface.up": "it can be used again (nid, interface)",
    "interface.speed": "it is slower than it was, or as fast as before (nid, interface, why)",
    "peer_ni.state": "a NID of a peer with several failed, or can be used again (nid, state)",
    "peer.state": "all NIDs of a peer failed, or one can be used again (peer, state)",
    "peer.doubted": "connections with a peer NI broke while answers were due, or it restarted (nid)",
    "peer.told": "what a peer says of itself is odd, or differs from what is known or configured (peer)",
    "discovery.forced": "a discovery is forced that can change nothing (peer)",
    "discovery.ignored": "the state machine of discovery had no place for an event (peer)",
    "path.stalled": "a path makes no progress (from, to)",
    "path.moves": "it does again (from, to)",
    "message.timed_out": "a message was not done in time (from, to, status)",
    "message.resent": "a message that failed is sent again over another path (from, to, before)",
    "message.moved": "a message that had not left takes another path (from, to, before)",
    "message.dropped": "a message that came was dropped (from, type, why)",
    "message.dropped_there": "a peer dropped a message of ours (nid, type, why)",
    "recovery.waiting": "NIs under recovery (of, count)",
    "retries.limited": "time-outs leave no time for retry_count (nid)",
    "gateway.down": "no NID of a gateway answers (nid)",
    "gateway.up": "a gateway answers (nid)",
    "route.loop": "messages come back to this node (net, nid)",
    "connection.plain": "a peer hung up on TLS, and is called without for a while (nid, peer)",
    "connection.refused": "a peer's connection was refused (from, why)",
    "connection.timed_out": "a connection made no progress in time (peer)",
    "connection.violated": "a peer broke the protocol (peer)",
    "bond.failover": "a bonding NI has another active slave (nid, slave)",
    "bond.peer_lost": "no path to a bonding peer answers (peer)",
    "bond.odd": "something that bonding cannot use came, or is configured",
    "bond.server": "a bonding data server is lost, or refuses (nid)",
    "selftest.failed": "a request of a test failed (session)",
    "program.failed": "a program's own call raised (what)",
    "log.left_out": "lines were left out, as there were too many",
    "other": "anything else",
}


class Line(str):
    """A line for people, one whatever is in it, the name of its event, and what it is about, for programs."""

    __slots__ = ("about", "event")

    about: dict[str, str]
    event: str

    def __new__(cls, event: str, text: str, **about: object) -> Self:
        """`about` are details by the names in EVENTS; they are shown as text. `source` is shown as `from`."""
        line = super().__new__(cls, escaped(text))
        line.event = event
        line.about = {("from" if name == "source" else name): str(value) for name, value in about.items()}
        return line


def longer(line: str, text: str) -> str:
    """The line with text behind it, about the same."""
    if not isinstance(line, Line):
        return line + text
    found = Line(line.event, str(line) + text)
    found.about = line.about
    return found

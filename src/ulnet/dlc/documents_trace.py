"""What `ulnet trace` gets from a node: which pairs carried what so far, and single messages."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["TraceDocument", "TraceView", "TracedFrame", "TracedMessage", "TracedPair"]


class TracedPair(Struct, rename={"source": "from", "target": "to"}):
    """One pair of NIDs and what it carried since the trace began; `reasons` count what decided."""

    peer: str
    source: str
    target: str
    messages: int
    bytes: int
    types: dict[str, int]
    reasons: dict[str, int]


class TracedFrame(Struct, omit_defaults=True):
    """What a message is to `ulnet.rpc`: the kind of its frame (docs/wire-rpc.md), the method it is about."""

    kind: str
    session: str
    slot: int
    number: int
    method: str | None = None


class TracedMessage(Struct, rename={"source": "from", "target": "to"}):
    """One message; `before` is the pair of the peer's message before, where it was another one."""

    at: float
    type: str
    bytes: int
    peer: str
    source: str
    target: str
    reason: str
    before: list[str] | None = None
    rpc: TracedFrame | None = None


class TraceView(Struct):
    """`at` is in seconds since the trace began; `lost` messages were overwritten before they were read."""

    session: int
    at: float
    cursor: int
    lost: int
    untold: int
    pairs: list[TracedPair]
    messages: list[TracedMessage]


class TraceDocument(Struct):
    """A piece of the trace."""

    trace: TraceView

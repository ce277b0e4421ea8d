"""A piece of the live trace as a document; asking for it keeps the trace going."""

from __future__ import annotations

from ulnet.control.instance import LNet
from ulnet.core.selection import RING, LiveTrace, Tally, Traced
from ulnet.dlc.documents_trace import TracedFrame, TracedMessage, TracedPair, TraceView
from ulnet.dlc.model import Trace
from ulnet.nid import Nid
from ulnet.node.admin.names import one_nid
from ulnet.wire.errors import WireError
from ulnet.wire.lnet import MsgType
from ulnet.wire.rpc import (
    REPLY_PORTAL,
    REQUEST_PORTAL,
    CallFrame,
    Kind,
    OtherVersion,
    is_batch,
    kind_of,
    session_of,
    unpack,
)

__all__ = ["read_trace"]


def read_trace(core: LNet, request: Trace) -> TraceView:
    """What happened since the request's cursor; without a session, from now on. Raises LNetError(EINVAL)."""
    peer = None
    if request.target is not None:
        nid = one_nid(request.target)
        known = core.peers.find(nid)
        peer = known.primary_nid if known is not None else nid
    trace = core.selector.follow(request.every_message)
    view = TraceView(
        session=trace.session,
        at=core.clock() - trace.began,
        cursor=0,
        lost=0,
        untold=trace.untold,
        pairs=_pairs(trace, peer),
        messages=[],
    )
    cursor = request.cursor if request.session == trace.session else 0
    view.lost, view.cursor, entries = trace.since(cursor if request.session else trace.noted, RING)
    if request.every_message:
        view.messages = [_message(one) for one in entries if peer in (None, one.peer)]
    return view


def _pairs(trace: LiveTrace, peer: Nid | None) -> list[TracedPair]:
    return [
        _pair(source, target, tally)
        for (source, target), tally in trace.tallies.items()
        if peer in (None, tally.peer)
    ]


def _pair(source: Nid, target: Nid, tally: Tally) -> TracedPair:
    return TracedPair(
        peer=str(tally.peer),
        source=str(source),
        target=str(target),
        messages=tally.messages,
        bytes=tally.size,
        types={MsgType(number).name: count for number, count in enumerate(tally.types) if count},
        reasons=dict(tally.reasons),
    )


def _message(one: Traced) -> TracedMessage:
    return TracedMessage(
        at=one.at,
        type=MsgType(one.type).name,
        bytes=one.size,
        peer=str(one.peer),
        source=str(one.source),
        target=str(one.target),
        reason=one.reason,
        before=None if one.before is None else [str(nid) for nid in one.before],
        rpc=_frame(one),
    )


def _frame(one: Traced) -> TracedFrame | None:
    """What it is to `ulnet.rpc`; None for what is no such frame."""
    if one.portal not in (REQUEST_PORTAL, REPLY_PORTAL):
        return None
    if is_batch(one.start):
        return TracedFrame(Kind.BATCH.name, f"{session_of(one.start):#x}", 0, 0, one.words or None)
    try:
        frame = unpack(one.start)
    except WireError:
        return None
    if isinstance(frame, OtherVersion):
        return None
    method = frame.method if isinstance(frame, CallFrame) else one.words or None
    return TracedFrame(kind_of(one.start).name, f"{frame.session:#x}", frame.slot, frame.number, method)

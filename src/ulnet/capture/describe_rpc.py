"""Frames of requests and replies (`ulnet.rpc`), in words and as facts (docs/wire-rpc.md)."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Final, TypeVar

from ulnet.capture.event import FrameWords
from ulnet.nid.errors import shown
from ulnet.wire.errors import WireError
from ulnet.wire.lnet import LNET_MTU, Header, MsgType
from ulnet.wire.rpc import (
    BODY,
    BULK_PORTAL,
    CHECK,
    IDEMPOTENT,
    MAGIC,
    NO_DEADLINE,
    REPLY_PORTAL,
    REQUEST_PORTAL,
    STREAM,
    TRACEBACK,
    XXH3,
    CallFrame,
    Chunk,
    Connect,
    Connected,
    Frame,
    Kind,
    Note,
    OtherVersion,
    Refused,
    Reply,
    frames_in,
    unpack,
)

__all__ = ["Methods", "is_rpc", "looks_like_rpc", "rpc_prefix", "rpc_words"]

_Key = TypeVar("_Key")
_PREFIX: Final = 512  # bytes of a frame that tell all but its data
_MAGIC: Final = MAGIC.to_bytes(2, "little")
_REMEMBERED: Final = 8192  # calls, and regions of bulk
_REGIONS: Final = 0xFFFF  # the bits of the match bits that number the regions of a call
_FLAGS: Final = {
    IDEMPOTENT: "idempotent",
    CHECK: "checked",
    XXH3: "XXH3",
    STREAM: "stream",
    TRACEBACK: "traceback",
}
_PORTALS: Final = (REQUEST_PORTAL, REPLY_PORTAL)


class Methods:
    """Which methods the calls call that were seen: by session, slot and number, and by their bulk."""

    def __init__(self) -> None:
        self._calls: OrderedDict[tuple[int, int, int], str] = OrderedDict()
        self._bulk: OrderedDict[int, str] = OrderedDict()

    def note(self, call: CallFrame) -> None:
        """A call was made."""
        _note(self._calls, (call.session, call.slot, call.number), call.method)
        for bulk in (call.sink, call.source):
            if bulk is not None:
                _note(self._bulk, bulk.bits, call.method)

    def of_call(self, frame: Frame) -> str | None:
        """What the call calls that a frame is about."""
        return self._calls.get((frame.session, frame.slot, frame.number))

    def of_bulk(self, match_bits: int) -> str | None:
        """What the call calls whose bulk is there."""
        return self._bulk.get(match_bits & ~_REGIONS)


def _note(known: OrderedDict[_Key, str], key: _Key, method: str) -> None:
    known[key] = method
    if len(known) > _REMEMBERED:
        known.popitem(last=False)


def is_rpc(header: Header) -> bool:
    """Whether a message may be a frame of requests and replies."""
    return header.type == MsgType.PUT and header.portal in _PORTALS


def looks_like_rpc(payload: bytes) -> bool:
    """Whether payload begins as such a frame does."""
    return payload[:2] == _MAGIC


def rpc_prefix(start: bytes) -> int:
    """How many bytes `rpc_words` needs of a payload that begins so."""
    return LNET_MTU if start[3] == Kind.BATCH else _PREFIX


def rpc_words(
    header: Header, payload: bytes, methods: Methods, facts: dict[str, object]
) -> FrameWords | None:
    """The frame that a message is, of which `payload` has the beginning; facts get the same under "rpc".

    None for what is no such frame, nor bulk of a call that was seen.
    """
    if header.portal == BULK_PORTAL and header.type in (MsgType.PUT, MsgType.GET):
        method = methods.of_bulk(header.match_bits)
        if method is None:
            return None
        facts["rpc"] = {"kind": "BULK", "method": method}
        return FrameWords(f"rpc bulk of {shown(method)}", "")
    if not (is_rpc(header) and looks_like_rpc(payload)):
        return None
    told: dict[str, object] = {}
    facts["rpc"] = told
    try:
        if payload[3:4] == bytes([Kind.BATCH]):
            return _batch(payload, methods, told)
        name, about, words = _frame(payload[:_PREFIX], header.payload_length, methods, told)
    except WireError as error:
        told["error"] = str(error)
        return FrameWords("rpc", f"  [{shown(error)}]")
    return FrameWords(f"rpc {name}", f"  [session {about}: {words}]")


def _batch(payload: bytes, methods: Methods, told: dict[str, object]) -> FrameWords:
    """Several frames in one. Raises WireError."""
    frames: list[dict[str, object]] = []
    told |= {"kind": Kind.BATCH.name, "frames": frames}
    names: Counter[str] = Counter()
    rest: list[str] = []
    for raw in frames_in(payload):
        frames.append({})
        name, about, words = _frame(bytes(raw), len(raw), methods, frames[-1])
        names[name] += 1
        rest.append(f"{about}: {words}" if not rest else f"{about.partition(' ')[2]}: {words}")
    kinds = ", ".join(f"{count} {name}" for name, count in names.items())
    return FrameWords(f"rpc {kinds or 'batch of nothing'}", f"  [session {'; '.join(rest)}]" if rest else "")


def _frame(raw: bytes, size: int, methods: Methods, told: dict[str, object]) -> tuple[str, str, str]:
    """Name, subject and all else of a frame of `size` bytes that begins so. Raises WireError."""
    frame = unpack(raw)
    if isinstance(frame, CallFrame):
        methods.note(frame)
    name, words = _words(frame, size - len(raw), told)
    told |= {"kind": name, "session": f"{frame.session:#x}", "slot": frame.slot, "number": frame.number}
    told["attempt"] = frame.attempt
    about = f"{frame.session:x}"
    method = None
    if not isinstance(frame, Connect | Connected) and name != Kind.CLOSE.name:
        about += f" slot {frame.slot} number {frame.number}"
        method = methods.of_call(frame)
    if frame.attempt > 1:
        about += f" attempt {frame.attempt}"
    if method is not None:
        told["method"] = method
        name += f" {shown(method)}"
    return name, about, words


def _words(frame: Frame, beyond: int, told: dict[str, object]) -> tuple[str, str]:
    """The name of its kind, and what only that kind has. `beyond` bytes of data are not in the frame."""
    match frame:
        case CallFrame():
            return Kind.CALL.name, _call(frame, beyond, told)
        case Reply():
            return Kind.REPLY.name, _reply(frame, beyond, told)
        case Chunk():
            told |= {"chunk": frame.index, "data": len(frame.data) + beyond}
            return Kind.CHUNK.name, f"chunk {frame.index}, {told['data']} B"
        case Refused():
            told |= {"errno": frame.errno, "error": frame.text}
            return Kind.REFUSED.name, f"errno {frame.errno}, {shown(frame.text)}"
        case Note():
            return frame.kind.name, _notice(frame, told)
        case Connect():
            told |= {"slots": frame.slots, "largest": frame.largest, "nids": [str(nid) for nid in frame.nids]}
            return Kind.CONNECT.name, f"{frame.slots} slots wanted, frames of up to {frame.largest} B"
        case Connected():
            told |= {"slots": frame.slots, "largest": frame.largest, "incarnation": f"{frame.incarnation:#x}"}
            words = f"{frame.slots} slots, frames of up to {frame.largest} B"
            return Kind.CONNECTED.name, f"{words}, incarnation {frame.incarnation:x}"
    assert isinstance(frame, OtherVersion)
    told["version"] = frame.version
    return "frame", f"version {frame.version}"


def _call(frame: CallFrame, beyond: int, told: dict[str, object]) -> str:
    data = len(frame.data) + beyond
    told |= {"data": data, "patience_ms": frame.patience, "credit": frame.credit}
    words = [f"{data} B"]
    if frame.sink is not None:
        told["into"] = frame.sink.length
        words.append(f"into {frame.sink.length} B")
    if frame.source is not None:
        told["bulk"] = frame.source.length
        what = "data" if frame.flags & BODY else "bulk"
        words.append(f"{what} of {frame.source.length} B to be fetched")
    if frame.left != NO_DEADLINE:
        told["left_ms"] = frame.left
        words.append(f"{frame.left} ms left")
    flags = [word for flag, word in _FLAGS.items() if frame.flags & flag]
    told["flags"] = flags
    return ", ".join(words + flags)


def _reply(frame: Reply, beyond: int, told: dict[str, object]) -> str:
    data = len(frame.data) + beyond
    told |= {"status": frame.status, "data": data, "service_us": frame.service_us, "pushed": frame.pushed}
    if frame.status:
        text = bytes(frame.data).decode("utf-8", "replace")
        told["error"] = text
        words = [f"errno {frame.status}, {shown(text)}"]
    else:
        words = [f"{data} B"]
    if frame.pushed:
        words.append(f"{frame.pushed} B pushed")
    if frame.chunks:
        told["chunks"] = frame.chunks
        words.append(f"{frame.chunks} chunks")
    return ", ".join([*words, f"after {frame.service_us} µs"])


def _notice(frame: Note, told: dict[str, object]) -> str:
    if frame.kind is Kind.CREDIT:
        told["credit"] = frame.value
        return f"room for chunks up to {frame.value}"
    if frame.kind is Kind.WORKING:
        told["next_ms"] = frame.value
        return f"at work, next notice within {frame.value} ms"
    if frame.kind is Kind.BUSY:
        told["again_ms"] = frame.value
        return f"try again in {frame.value} ms"
    return "given up" if frame.kind is Kind.CANCEL else "ended"

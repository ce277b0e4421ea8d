"""Messages of LNet selftest, in words and as facts: services, sessions, batches, and whose bulk it is."""

from __future__ import annotations

import errno
from collections import OrderedDict
from typing import Final, TypeVar

from ulnet.capture.event import FrameWords
from ulnet.nid import Nid
from ulnet.nid.errors import shown
from ulnet.wire.errors import Buffer, WireError
from ulnet.wire.lnet import Header, MsgType
from ulnet.wire.selftest import (
    BULK_PORTAL,
    FRAMEWORK_PORTAL,
    MAGIC,
    MESSAGE_SIZE,
    TEST_PORTAL,
    VERSION,
    Message,
    unpack_message,
)
from ulnet.wire.selftest_bodies import (
    BatchRequest,
    BrwRequest,
    DebugReply,
    MakeSessionReply,
    MakeSessionRequest,
    Reply,
    Request,
    TestRequest,
)
from ulnet.wire.selftest_values import (
    ANY_SESSION,
    RAILS_KNOWN,
    BatchOp,
    BulkBytes,
    BulkPages,
    Check,
    Direction,
    Service,
    SessionId,
)

__all__ = ["Sessions", "is_selftest", "looks_like_selftest", "selftest_words"]

_Key = TypeVar("_Key")
_PORTALS: Final = (TEST_PORTAL, FRAMEWORK_PORTAL, BULK_PORTAL)
_MAGICS: Final = (MAGIC.to_bytes(4, "little"), MAGIC.to_bytes(4, "big"))
_REMEMBERED: Final = 8192
_IDS: Final = frozenset({"rpyid", "bulkid", "batch", "mark", "nid"})  # numbers that name something


class Sessions:
    """What earlier messages told: names of sessions, and what bulk belongs to which request."""

    def __init__(self) -> None:
        self._names: OrderedDict[SessionId, str] = OrderedDict()
        self._bulk: OrderedDict[tuple[Nid, int], str] = OrderedDict()

    def note(self, body: Request | Reply, source: Nid) -> None:
        """A message was sent by source."""
        match body:
            case MakeSessionRequest() | MakeSessionReply() | DebugReply() if body.name:
                _note(self._names, body.sid, body.name)
            case BrwRequest():
                _note(self._bulk, (source, body.bulkid), f"BRW {_word(Direction, body.direction)}")
            case TestRequest(is_client=1):
                _note(self._bulk, (source, body.bulkid), "TEST, the nodes to ask")

    def name(self, sid: SessionId) -> str | None:
        """The name of a session, if it was told."""
        return self._names.get(sid)

    def bulk(self, client: Nid, bits: int) -> str | None:
        """What asked for the bulk at those match bits of a client, if that was seen."""
        return self._bulk.get((client, bits))


def _note(known: OrderedDict[_Key, str], key: _Key, words: str) -> None:
    known[key] = words
    if len(known) > _REMEMBERED:
        known.popitem(last=False)


def is_selftest(header: Header) -> bool:
    """Whether a message may be one of selftest."""
    return (
        header.type == MsgType.PUT
        and header.portal in _PORTALS
        and header.payload_length == MESSAGE_SIZE
    )  # fmt: skip


def looks_like_selftest(payload: Buffer) -> bool:
    """Whether a payload begins as messages of selftest do."""
    return bytes(payload[:4]) in _MAGICS


def selftest_words(
    header: Header, payload: bytes, sessions: Sessions, facts: dict[str, object]
) -> FrameWords | None:
    """The message of selftest that a message carries whole in `payload`; facts get the same under "selftest".

    None for what carries none, nor bulk of a request that was seen.
    """
    if is_selftest(header) and looks_like_selftest(payload):
        told: dict[str, object] = {}
        facts["selftest"] = told
        try:
            message = unpack_message(payload)
        except WireError as error:
            told["error"] = str(error)
            return FrameWords("selftest", f"  [{error}]")
        return _message(message, header.src_nid, sessions, told)
    if header.portal == BULK_PORTAL and header.type in (MsgType.PUT, MsgType.GET):
        asked = sessions.bulk(header.dest_nid, header.match_bits)
        if asked is not None:
            facts["selftest"] = {"message": "bulk", "of": asked}
            return FrameWords(f"selftest bulk of {asked}", "")
    return None


def _message(message: Message, source: Nid, sessions: Sessions, told: dict[str, object]) -> FrameWords:
    body = message.body
    assert isinstance(body, Request | Reply)
    sessions.note(body, source)
    kind = "request" if isinstance(body, Request) else "reply"
    told |= {"service": message.service.name, "message": kind, "features": message.features}
    words = []
    for name in body.__match_args__:
        value = getattr(body, name)
        if name == "status":
            words.append(_status(value, told))
        elif isinstance(value, SessionId):
            words.append(_session(value, sessions, told))
        elif name == "parameters":
            words.append(_parameters(value, told))
        elif isinstance(value, tuple):
            told[name] = value._asdict()  # type: ignore[attr-defined]
            words += _counters(name, value)
        else:
            words += _field(body, name, value, told)
    if message.version != VERSION:
        told["version"] = message.version
        words.append(f"version {message.version}")
    words.append(f"features {message.features:#x}")
    if message.byteorder == "big":
        told["byteorder"] = "big"
        words.append("big-endian")
    return FrameWords(f"selftest {message.service.name} {kind}", f"  [{', '.join(words)}]")


def _field(body: Request | Reply, name: str, value: object, told: dict[str, object]) -> list[str]:
    """A field that has no structure, in words; 0 in a field that may be left out says nothing."""
    if isinstance(value, str):
        told[name] = value  # of a session: shown with its ID
        return [f"{name} {shown(value)}"] if value and name != "name" else []
    assert isinstance(value, int)
    if name in _IDS:
        return _id(name, value, told)
    if isinstance(body, BrwRequest) and name in ("direction", "check"):
        word = _word(Direction if name == "direction" else Check, value)
    elif isinstance(body, BatchRequest) and name == "op":
        word = _word(BatchOp, value)
    elif isinstance(body, TestRequest) and name == "service":
        told["test"] = _word(Service, value)  # "service" is that of the message
        return [f"test of {told['test']}"]
    elif name in ("seconds", "nanoseconds"):
        told[name] = value
        return []
    else:
        told[name] = value
        if name == "sequence":
            return [f"sequence {value}"]
        return [f"{name} {value:#x}" if name == "magic" else f"{name} {value}"] if value else []
    told[name] = word
    return [word if name in ("direction", "op") else f"{name} {word}"]


def _id(name: str, value: int, told: dict[str, object]) -> list[str]:
    """A field that names something; most say nothing to a reader."""
    if name == "nid":
        told[name] = str(Nid.from_nid4(value)) if value else ""
        return [f"rail {told[name]}"] if value else []
    told[name] = f"{value:#x}"
    if name == "mark":
        return ["tells its rails"] if value == RAILS_KNOWN else []
    return [f"{name} {value:#x}"] if name == "batch" else []


def _status(status: int, told: dict[str, object]) -> str:
    told["status"] = status
    return f"{errno.errorcode.get(status, 'status')} ({status})" if status else "ok"


def _session(sid: SessionId, sessions: Sessions, told: dict[str, object]) -> str:
    if sid == ANY_SESSION:
        told["session"] = None
        return "no session"
    maker = str(Nid.from_nid4(sid.nid))
    told["session"] = f"{maker}/{sid.stamp}"
    name = sessions.name(sid)
    if name is None:
        return f"session {maker}/{sid.stamp}"
    told["session_name"] = name
    return f"session {shown(name)} {maker}/{sid.stamp}"


def _parameters(value: object, told: dict[str, object]) -> str:
    if isinstance(value, bytes):
        told["parameters"] = value.hex()
        return f"parameters {value.hex()}"
    if not isinstance(value, BulkBytes | BulkPages):
        told["parameters"] = {}
        return "no parameters"
    length = {"pages": value.pages} if isinstance(value, BulkPages) else {"length": value.length}
    offset = 0 if isinstance(value, BulkPages) else value.offset
    direction, check = _word(Direction, value.direction), _word(Check, value.check)
    told["parameters"] = {"direction": direction, **length, "offset": offset, "check": check}
    size = f"{value.pages} pages" if isinstance(value, BulkPages) else f"{value.length} B"
    return f"{direction} {size}" + (f" at offset {offset}" if offset else "") + f", check {check}"


def _counters(name: str, counters: tuple[int, ...]) -> list[str]:
    """Those that are not 0."""
    fields = getattr(counters, "_fields", ())
    named = [f"{field} {count}" for field, count in zip(fields, counters, strict=True) if count]
    return [f"{name}: {' '.join(named)}"] if named else []


def _word(kind: type[Direction | Check | BatchOp | Service], number: int) -> str:
    try:
        word = kind(number).name
    except ValueError:
        return f"{kind.__name__.lower()} {number}, which does not exist"
    return word if kind is Service else word.lower()

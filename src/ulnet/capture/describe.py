"""Protocol values in words that people who know LNet use, and as facts for JSON."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from ulnet.capture.describe_bond import KIND_WORDS, bond_words, looks_like_bond
from ulnet.capture.describe_rpc import Methods, rpc_words
from ulnet.capture.describe_selftest import Sessions, selftest_words
from ulnet.capture.event import Saying
from ulnet.wire.acceptor import ConnRequest
from ulnet.wire.bond import Kind, kind_of
from ulnet.wire.errors import Buffer, WireError
from ulnet.wire.lnet import LNET_MTU, NO_WMD, PING_MATCH_BITS, PING_PORTAL, Header, MsgType
from ulnet.wire.ping import MAGIC as PING_MAGIC
from ulnet.wire.ping import Feature, NiStatus, PingInfo
from ulnet.wire.socklnd import KEEPALIVE_COOKIE, ConnType, Hello, noop_acks

__all__ = [
    "Requests",
    "is_ping",
    "looks_like_ping_info",
    "say_hello",
    "say_message",
    "say_noop",
    "say_request",
]

_REMEMBERED = 8192  # requests whose answers we can still name
_LISTED = 16  # NIs that a line shows; JSON shows all
_TYPE_NAMES = {int(kind): kind.name for kind in MsgType}
_CTYPE_NAMES = {int(kind): kind.name for kind in ConnType}
_STATUS = {NiStatus.UP: "up", NiStatus.DOWN: "down", NiStatus.INVALID: "invalid"}


class Requests:
    """What answers answer: wire handles of GETs and PUTs seen -> a few words; methods of calls; sessions."""

    def __init__(self) -> None:
        self.methods: Methods = Methods()
        self.sessions: Sessions = Sessions()
        self._words: OrderedDict[bytes, str] = OrderedDict()

    def note(self, wmd: bytes, words: str) -> None:
        """A request with this handle was sent."""
        self._words[wmd] = words
        if len(self._words) > _REMEMBERED:
            self._words.popitem(last=False)

    def words(self, wmd: bytes) -> str:
        """What the request with this handle was; empty if it was not seen."""
        return self._words.get(wmd, "")


def is_ping(header: Header) -> bool:
    """Whether a GET is a ping, a PUT a push."""
    return header.portal == PING_PORTAL and header.match_bits == PING_MATCH_BITS


def looks_like_ping_info(data: Buffer) -> bool:
    """Whether a payload starts as ping info does."""
    return PING_MAGIC in (int.from_bytes(data[:4], "little"), int.from_bytes(data[:4], "big"))


def say_request(request: ConnRequest) -> Saying:
    """A connection request; one for NID 0 is a refusal."""
    facts: dict[str, object] = {"version": request.version, "byteorder": request.byteorder}
    if request.version == 1 and not any(request.nid):
        return Saying("refusal", f"refused: speaks connection request v{request.version} only", facts)
    facts["nid"] = str(request.nid)
    text = f"connection request v{request.version} for {request.nid}{_big(request.byteorder)}"
    return Saying("connection-request", text, facts)


def say_hello(hello: Hello) -> Saying:
    """A HELLO."""
    known = _CTYPE_NAMES.get(hello.ctype)
    ctype = known or f"type {hello.ctype}, which does not exist,"
    ends = f"{hello.src_nid}" if hello.dst_nid.is_any else f"{hello.src_nid} → {hello.dst_nid}"
    text = (
        f"HELLO v{hello.version} {ctype} {ends}, incarnation {hello.src_incarnation:x}{_big(hello.byteorder)}"
    )
    if hello.ctype == ConnType.NONE:
        text += " (refused: try again later)"
    if hello.nips:
        text += f", {hello.nips} IP addresses"
    facts: dict[str, object] = {
        "version": hello.version,
        "byteorder": hello.byteorder,
        "type": known or hello.ctype,
        "src_nid": str(hello.src_nid),
        "dst_nid": str(hello.dst_nid),
        "src_pid": hello.src_pid,
        "dst_pid": hello.dst_pid,
        "src_incarnation": f"{hello.src_incarnation:#x}",
        "dst_incarnation": f"{hello.dst_incarnation:#x}",
        "ips": hello.nips,
    }
    return Saying("hello", text, facts)


def say_noop(cookie0: int, cookie1: int, version: int) -> Saying:
    """A NOOP: keepalive or acknowledgement of zero-copy cookies."""
    facts: dict[str, object] = {"cookies": [f"{cookie0:#x}", f"{cookie1:#x}"]}
    acked = noop_acks(cookie0, cookie1, version)
    if not acked:
        word = "keepalive" if cookie1 == KEEPALIVE_COOKIE else "without meaning"
        return Saying("noop", f"NOOP  {word}", facts)
    if isinstance(acked, range):
        words = (
            f"{acked.start:#x} to {acked.stop - 1:#x}"
            if acked.stop - acked.start > 1
            else f"{acked.start:#x}"
        )
    else:
        words = ", ".join(f"{cookie:#x}" for cookie in acked)
    return Saying("noop", f"NOOP  zero-copy acknowledgement of {words}", facts)


def say_message(
    header: Header,
    requests: Requests,
    *,
    payload: bytes = b"",
    cookies: tuple[int, int] = (0, 0),
    carrier: str = "",
    more: Iterable[str] = (),
) -> Saying:
    """An LNet message.

    `payload` is given where it may be ping info, a message of selftest, or the beginning of a frame of
    `ulnet.rpc`; `carrier` names the LND's own message around this one, `more` is what that says besides.
    """
    known = _TYPE_NAMES.get(header.type)
    name = known or f"message of unknown type {header.type}"
    facts: dict[str, object] = {
        "type": known or header.type,
        "src_nid": str(header.src_nid),
        "dest_nid": str(header.dest_nid),
        "src_pid": header.src_pid,
        "dest_pid": header.dest_pid,
        "payload": header.payload_length,
    }
    frame = rpc_words(header, payload, requests.methods, facts)
    if frame is None:
        frame = selftest_words(header, payload, requests.sessions, facts)
    words = [*_own_words(header, requests, facts, "" if frame is None else frame.name)]
    if header.payload_length > LNET_MTU:
        words.append("more than LNet allows")
    for cookie, word, key in ((cookies[0], "zc", "zc_request"), (cookies[1], "zc-ack", "zc_ack")):
        if cookie:
            words.append(f"{word} {cookie:#x}")
            facts[key] = f"{cookie:#x}"
    words += more
    text = f"{carrier}{name:<5} {header.src_nid} → {header.dest_nid}  {', '.join(words)}"
    if frame is not None:
        text += frame.rest
    elif looks_like_ping_info(payload):
        text += _ping_words(payload, facts)
    elif looks_like_bond(payload):
        kind = Kind.BEACON if header.type == MsgType.REPLY else kind_of(header)
        text += bond_words(kind, payload, facts) if kind is not None else ""
    return Saying("message", text, facts)


def _own_words(header: Header, requests: Requests, facts: dict[str, object], name: str) -> list[str]:
    """What only this type of message has; requests are noted for their answers, by their `name`."""
    kind = header.type
    size = f"{header.payload_length} B"
    if kind in (MsgType.ACK, MsgType.REPLY):
        facts["md"] = _md_facts(header.wmd)
        request = requests.words(header.wmd)
        if kind == MsgType.ACK:
            facts |= {"match_bits": f"{header.match_bits:#x}", "mlength": header.length}
            size = f"{header.length} B accepted"
        return [*([f"to {request}"] if request else []), size, _md(header.wmd)]
    if kind not in (MsgType.PUT, MsgType.GET):
        return [size]
    facts |= {"portal": header.portal, "match_bits": f"{header.match_bits:#x}", "offset": header.offset}
    target = f"portal {header.portal} match {header.match_bits:#x}"
    bond = kind_of(header)
    if is_ping(header):
        target = "push" if kind == MsgType.PUT else "ping"
    elif bond is not None:
        target = KIND_WORDS[bond]
    elif name:
        target = name
    words = [target]
    if kind == MsgType.GET:
        facts["sink_length"] = header.length
        words.append(f"up to {header.length} B")
    else:
        facts["hdr_data"] = f"{header.hdr_data:#x}"
        words.append(size)
    if header.offset:
        words.append(f"offset {header.offset}")
    if header.hdr_data:
        words.append(f"hdr_data {header.hdr_data:#x}")
    if header.wmd == NO_WMD:
        words.append("no ACK")
    else:
        facts["md"] = _md_facts(header.wmd)
        words.append(("ACK to " if kind == MsgType.PUT else "") + _md(header.wmd))
        named = is_ping(header) or bond is not None or name
        requests.note(header.wmd, target if named else f"{MsgType(kind).name} {target}")
    return words


def _ping_words(payload: bytes, facts: dict[str, object]) -> str:
    try:
        info = PingInfo.unpack(payload)
    except WireError as error:
        facts["ping_info"] = {"error": str(error)}
        return f"  [{error}]"
    features = [str(flag.name) for flag in Feature if info.features & flag]
    states = [f"{entry.nid} {_status(entry.status)}" for entry in info.entries]
    facts["ping_info"] = {
        "features": features,
        "features_bits": f"{info.features:#x}",
        "sequence": info.sequence,
        "pid": info.pid,
        "nis": [{"nid": str(entry.nid), "status": _status(entry.status)} for entry in info.entries],
        "truncated": info.truncated,
        "metadata": len(info.metadata),
    }
    shown = ", ".join(states[:_LISTED]) or "no NI"
    more = f" and {len(states) - _LISTED} more" if len(states) > _LISTED else ""
    cut = " (cut off)" if info.truncated else ""
    return f"  [seq {info.sequence}: {shown}{more}{cut}; {info.features:#x} {' '.join(features)}]"


def _status(status: int) -> str:
    return _STATUS.get(status, f"status {status:#x}")


def _md(wmd: bytes) -> str:
    return f"md {int.from_bytes(wmd[8:], 'little'):#x}"


def _md_facts(wmd: bytes) -> dict[str, str]:
    interface, handle = (int.from_bytes(part, "little") for part in (wmd[:8], wmd[8:]))
    return {"interface": f"{interface:#x}", "object": f"{handle:#x}"}


def _big(byteorder: str) -> str:
    return ", big-endian" if byteorder == "big" else ""

"""o2iblnd's messages and the connection manager's, in words and as facts."""

from __future__ import annotations

from typing import Final

from ulnet.capture.describe import Requests, is_ping, say_message
from ulnet.capture.describe_rpc import is_rpc
from ulnet.capture.describe_selftest import is_selftest
from ulnet.capture.event import Saying
from ulnet.wire.errors import WireError
from ulnet.wire.lnet import MsgType
from ulnet.wire.o2ib import O2ibMessage, O2ibType, Reject, has_magic

__all__ = ["say_connection", "say_o2ib", "say_write"]

_CM_REJECT: Final = 0x12
_CM_NAMES: Final = {
    0x10: "CM request",
    0x12: "CM reject",
    0x13: "CM reply",
    0x14: "CM ready to use",
    0x15: "CM disconnect request",
    0x16: "CM disconnect reply",
}


def say_connection(attribute: int, private: bytes) -> Saying:
    """A connection manager's message with o2iblnd's private data, if it has any."""
    name = _CM_NAMES.get(attribute, f"CM message {attribute:#x}")
    facts: dict[str, object] = {"cm": name.removeprefix("CM ")}
    if not has_magic(private):
        return Saying("cm", name, facts)
    try:
        if attribute == _CM_REJECT:
            reject = Reject.unpack(private)
            facts |= {"reason": reject.reason_text, "version": reject.version}
            return Saying("cm", f"{name}: {reject.reason_text}, v{reject.version:#x}", facts)
        message = O2ibMessage.unpack(private)
    except WireError as error:
        return Saying("cm", f"{name}: {error}", facts | {"error": str(error)})
    facts |= _facts(message)
    text = f"{name}: {message.type.name} v{message.version:#x} {message.src_nid} → {message.dst_nid}"
    if message.params:
        depth, fragments, size = (
            message.params.queue_depth,
            message.params.max_fragments,
            message.params.max_message,
        )
        facts |= {"queue_depth": depth, "max_fragments": fragments, "max_message": size}
        text += f", queue depth {depth}, {fragments} fragments, messages up to {size} B"
    return Saying("cm", text, facts)


def say_o2ib(message: O2ibMessage, requests: Requests) -> Saying:
    """A message over a queue pair."""
    name = message.type.name
    facts = _facts(message)
    words = [*_own_words(message, facts)]
    if message.credits:
        words.append(f"returns {message.credits} credit{'s' if message.credits > 1 else ''}")
    header = message.header
    if header is None:
        text = ", ".join((f"{name} {message.src_nid} → {message.dst_nid}", *words))
        return Saying("o2ib", text, facts)
    told = header.type == MsgType.REPLY or (header.type == MsgType.PUT and is_ping(header))
    payload = message.payload if told or is_rpc(header) or is_selftest(header) else b""
    inner = say_message(header, requests, payload=payload, carrier=f"{name} ", more=words)
    return Saying("message", inner.text, inner.facts | facts)


def _own_words(message: O2ibMessage, facts: dict[str, object]) -> list[str]:
    words = []
    if message.type not in (O2ibType.NOOP, O2ibType.IMMEDIATE):
        facts["cookie"] = f"{message.cookie:#x}"
        words.append(f"cookie {message.cookie:#x}")
    if message.type == O2ibType.PUT_ACK:
        facts["sink_cookie"] = f"{message.sink_cookie:#x}"
        words.append(f"sink cookie {message.sink_cookie:#x}")
    if message.target:
        count = len(message.target.fragments)
        facts |= {
            "fragments": count,
            "rdma_length": message.target.length,
            "rkey": f"{message.target.key:#x}",
        }
        words.append(f"memory for {message.target.length} B in {count} fragment{'s' if count > 1 else ''}")
    if message.type in (O2ibType.PUT_NAK, O2ibType.PUT_DONE, O2ibType.GET_DONE):
        facts["status"] = message.status
        words.append(f"status {message.status}")
    return words


def say_write(key: int, size: int) -> Saying:
    """The first packet of an RDMA write."""
    return Saying("rdma-write", f"RDMA WRITE {size} B, rkey {key:#x}", {"length": size, "rkey": f"{key:#x}"})


def _facts(message: O2ibMessage) -> dict[str, object]:
    return {
        "o2ib": message.type.name,
        "version": message.version,
        "credits": message.credits,
        "lnd_src_nid": str(message.src_nid),
        "lnd_dest_nid": str(message.dst_nid),
        "src_incarnation": f"{message.src_incarnation:#x}",
        "dst_incarnation": f"{message.dst_incarnation:#x}",
    }

"""What others send us, by target: each takes bytes, and may raise nothing that it does not announce.

`make fuzz` feeds them; tests/harness/test_corpus.py feeds them the corpus (tests/corpus, a folder a target).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from ulnet.dlc.config import read_config
from ulnet.dlc.legacy import LegacyError
from ulnet.dlc.legacy_text import read_text
from ulnet.dlc.modprobe import read_modprobe
from ulnet.dlc.protocol import ProtocolError, decode_reply, decode_request
from ulnet.lnd.tcp.certificate import certificate_of
from ulnet.lnd.tcp.handshake import ActiveHandshake, Identity, PassiveHandshake, Verdict
from ulnet.nid import LNET_PID, Net, Nid, NidError, NidList
from ulnet.wire import bond, o2ib, rpc
from ulnet.wire.acceptor import ConnRequest
from ulnet.wire.errors import WireError
from ulnet.wire.lnet import unpack_header
from ulnet.wire.ping import PingInfo
from ulnet.wire.selftest import unpack_message
from ulnet.wire.socklnd import ConnType, Hello

__all__ = ["TARGETS"]

_OWN = Identity(Nid.parse("10.0.0.1@tcp"), LNET_PID, 1)
_LARGE = Identity(Nid.parse("fd00::1@tcp"), LNET_PID, 1)
_PEER = Nid.parse("10.0.0.2@tcp")


def _packed(unpack: Callable[[bytes], object]) -> Callable[[bytes], None]:
    def target(data: bytes) -> None:
        with suppress(WireError):
            unpack(data)

    return target


def _headers(data: bytes) -> None:
    for large in (False, True):
        with suppress(WireError):
            unpack_header(data, 0, large)


def _feed(machine: PassiveHandshake | ActiveHandshake, data: bytes, own: Identity) -> Verdict:
    """In the pieces that it wants, or shorter ones, as the first byte says; the last verdict."""
    verdict = Verdict.MORE
    step = data[0] if data else 1
    at = 1
    while at < len(data):
        piece = data[at : at + (machine.want if step > 16 else min(machine.want, step + 1))]
        at += len(piece)
        verdict = machine.feed(piece)
        if verdict is Verdict.REQUEST and isinstance(machine, PassiveHandshake):
            machine.accept_request(own)
        elif verdict is not Verdict.MORE:
            break
        if not machine.want:
            break
    return verdict


def _passive(data: bytes) -> None:
    for own in (_OWN, _LARGE):
        machine = PassiveHandshake()
        if _feed(machine, data, own) is Verdict.HELLO:
            machine.answer(ConnType.CONTROL)


def _active(data: bytes) -> None:
    for version in (1, 2, 3, 4):
        own = _LARGE if version == 4 else _OWN
        _feed(ActiveHandshake(own, _PEER, LNET_PID, ConnType.CONTROL, version), data, own)


def _text(read: Callable[[str], object], *announced: type[Exception]) -> Callable[[bytes], None]:
    def target(data: bytes) -> None:
        with suppress(*announced):
            read(data.decode("utf-8", "replace"))

    return target


def _nids(text: str) -> None:
    for parse in (Nid.parse, Net.parse, NidList.parse):
        with suppress(NidError):
            shown = str(parse(text))
            assert str(parse(shown)) == shown, text


def _certificate(text: str) -> None:
    uris = [("URI", line) for line in text.splitlines()]
    found = certificate_of({"subjectAltName": uris, "notAfter": "Jan  1 00:00:00 2040 GMT"})
    found.covers(_PEER)


def _batch(data: bytes) -> None:
    with suppress(WireError):
        rpc.unpack(data)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "request": _packed(ConnRequest.unpack),
    "hello": _packed(Hello.unpack),
    "header": _headers,
    "ping": _packed(PingInfo.unpack),
    "called": _passive,
    "calling": _active,
    "rpc": _batch,
    "selftest": _packed(unpack_message),
    "o2ib": _packed(o2ib.O2ibMessage.unpack),
    "o2ib-reject": _packed(o2ib.Reject.unpack),
    **{
        f"bond-{name.__name__.lower()}": _packed(name.unpack)
        for name in (bond.BondHello, bond.Register, bond.Resolve, bond.Answer, bond.Beacon)
    },
    "dlc-request": _text(lambda text: decode_request(text.encode()), ProtocolError),
    "dlc-reply": _text(lambda text: decode_reply(text.encode()), ProtocolError),
    "yaml": _text(read_config),
    "modprobe": _text(read_modprobe, LegacyError),
    "legacy": _text(read_text, LegacyError),
    "nids": _text(_nids),
    "certificate": _text(_certificate),
}

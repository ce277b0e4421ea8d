"""Connection request and HELLO without sockets (spec wire-socklnd.md §2, §3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.cycles import left_in_cycles
from ulnet.lnd.tcp.handshake import ActiveHandshake, Identity, PassiveHandshake, Verdict
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.acceptor import ConnRequest
from ulnet.wire.errors import ByteOrder
from ulnet.wire.socklnd import ConnType, Hello

US = Identity(Nid.parse("10.0.0.1@tcp"), LNET_PID, 111)
US6 = Identity(Nid.parse("fd00::1@tcp"), LNET_PID, 111)
PEER = Nid.parse("10.0.0.2@tcp")
PEER6 = Nid.parse("fd00::2@tcp")
REFUSAL = bytes.fromhex("0071ceac01000000") + bytes(8)
NO_REPLY = b""


def hello(
    version: int = 3,
    src: Nid = PEER,
    dst: Nid = US.nid,
    ctype: int = 1,
    pid: int = LNET_PID,
    order: ByteOrder = "little",
    ips: tuple[int, ...] = (),
) -> bytes:
    return Hello(version, src, dst, pid, 77, 222, 0, ctype, len(ips), order, ips).pack()


def feed(
    machine: PassiveHandshake | ActiveHandshake, data: bytes, own: Identity = US
) -> tuple[Verdict, bytes]:
    """Give it what it wants piece by piece; the last verdict, and what it did not want."""
    verdict = Verdict.MORE
    while data and machine.want:
        piece, data = data[: machine.want], data[machine.want :]
        verdict = machine.feed(piece)
        if verdict is Verdict.REQUEST:
            assert isinstance(machine, PassiveHandshake)
            machine.accept_request(own)
            verdict = Verdict.MORE
        if verdict is not Verdict.MORE:
            break
    return verdict, data


@pytest.mark.parametrize("version", [1, 2, 3, 4])
@pytest.mark.parametrize("ctype", list(ConnType)[1:])
def test_every_version_and_type_is_answered_in_kind(version: int, ctype: ConnType) -> None:
    machine = PassiveHandshake()
    verdict, rest = feed(machine, ConnRequest.to(US.nid).pack() + hello(version, ctype=ctype) + b"next")
    assert verdict is Verdict.HELLO
    assert rest == b"next", "bytes behind the HELLO are left alone"
    assert machine.ctype is ctype.inverted()
    answer = Hello.unpack(machine.answer(machine.ctype))
    assert (answer.version, answer.src_nid, answer.src_pid) == (version, US.nid, LNET_PID)
    assert (answer.src_incarnation, answer.ctype, answer.dst_pid) == (111, ctype.inverted(), 77)
    assert version == 1 or answer.dst_nid == PEER


def test_large_nids() -> None:
    machine = PassiveHandshake()
    verdict, _ = feed(machine, ConnRequest.to(US6.nid).pack() + hello(4, PEER6, US6.nid), US6)
    assert verdict is Verdict.HELLO
    assert Hello.unpack(machine.answer(ConnType.CONTROL)).dst_nid == PEER6


def test_big_endian_peers_are_understood_and_answered_in_our_order() -> None:
    machine = PassiveHandshake()
    request = ConnRequest(1, US.nid, "big").pack()
    verdict, _ = feed(machine, request + hello(order="big"))
    assert verdict is Verdict.HELLO
    assert machine.hello is not None and machine.hello.byteorder == "big"
    answer = Hello.unpack(machine.answer(ConnType.CONTROL))
    assert (answer.byteorder, answer.dst_nid) == ("little", PEER)


@pytest.mark.parametrize(
    ("data", "reply", "unread"),
    [
        (b"\xef\xbe\xad\xde" + bytes(12), NO_REPLY, 12),
        (hello(), REFUSAL, 52),  # LNet's magic
        (b"\x45\x72\x69\x63" + bytes(12), REFUSAL, 12),  # and swapped
        (b"\xed\x0d\xbc\xee" + bytes(12), NO_REPLY, 12),
        (ConnRequest.to(US.nid).pack()[:4] + b"\x07\0\0\0" + bytes(8), REFUSAL, 8),
    ],
)
def test_bad_requests(data: bytes, reply: bytes, unread: int) -> None:
    machine = PassiveHandshake()
    verdict, rest = feed(machine, data)
    assert (verdict, machine.reply, len(rest)) == (Verdict.REFUSED, reply, unread)
    assert machine.error


NONE_V3 = Hello(3, US.nid, US.nid, LNET_PID, 0, 111, 0, -1).pack()
NONE_V4 = Hello(4, US6.nid, US6.nid, LNET_PID, 0, 111, 0, -1).pack()


@pytest.mark.parametrize(
    ("own", "data", "reply"),
    [
        (US, b"GET / HT", NO_REPLY),
        (US, hello()[:4] + b"\x05\0\0\0" + bytes(48), NONE_V3),
        (US6, hello()[:4] + b"\x09\0\0\0" + bytes(48), NONE_V4),
        (US, b"\xed\x0d\xbc\xee\x02\0\0\0" + bytes(64), NONE_V3),
        (US, hello(ctype=9), NO_REPLY),
        (US, hello(ctype=-1), NO_REPLY),
        (US, hello(src=Nid(b"\xff" * 20)), NO_REPLY),
        (US, hello(src=Nid.parse("10.0.0.2@o2ib")), NO_REPLY),
        (US6, hello(4, Nid.of(US6.nid.net, bytes(range(8))), US6.nid), NO_REPLY),
        (US, hello()[:52] + (17).to_bytes(4, "little"), NO_REPLY),
        (US, hello()[:52] + (2).to_bytes(4, "little") + b"\1\0\0\0" + bytes(4), NO_REPLY),
        (US6, hello(3), NO_REPLY),
    ],
)
def test_bad_hellos(own: Identity, data: bytes, reply: bytes) -> None:
    machine = PassiveHandshake()
    verdict, _ = feed(machine, ConnRequest.to(own.nid).pack() + data, own)
    assert (verdict, machine.reply) == (Verdict.REFUSED, reply)
    assert machine.error


def test_obsolete_addresses_are_read_and_ignored() -> None:
    machine = PassiveHandshake()
    verdict, rest = feed(machine, ConnRequest.to(US.nid).pack() + hello(ips=(1, 2, 3)) + b"x")
    assert (verdict, rest) == (Verdict.HELLO, b"x")


def active(version: int = 3, ctype: ConnType = ConnType.BULK_IN) -> ActiveHandshake:
    return ActiveHandshake(US, PEER, LNET_PID, ctype, version)


def test_the_opening_is_request_and_hello() -> None:
    opening = active().opening
    assert ConnRequest.unpack(opening) == ConnRequest(1, PEER)
    ours = Hello.unpack(opening[16:])
    assert (ours.version, ours.src_nid, ours.dst_nid, ours.ctype) == (3, US.nid, PEER, 2)
    assert len(opening) == 16 + 56
    large = ActiveHandshake(US6, PEER6, LNET_PID, ConnType.CONTROL, 4).opening
    assert ConnRequest.unpack(large) == ConnRequest(2, PEER6)
    assert len(large) == 28 + 80


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        (hello(ctype=3), Verdict.HELLO),
        (hello(ctype=-1), Verdict.RETRY),
        (hello(2, ctype=-1), Verdict.OTHER_VERSION),
        (hello(4, ctype=-1), Verdict.OTHER_VERSION),
        (hello(1, ctype=-1), Verdict.REFUSED),
        (hello(2, ctype=3), Verdict.REFUSED),
        (hello(ctype=2), Verdict.REFUSED),
        (hello(ctype=0), Verdict.REFUSED),
        (hello(ctype=5), Verdict.REFUSED),
        (hello(src=Nid.parse("10.0.0.3@tcp"), ctype=3), Verdict.REFUSED),
        (hello(pid=99, ctype=3), Verdict.REFUSED),
        (hello()[:4] + b"\x06\0\0\0" + bytes(48), Verdict.REFUSED),
        (REFUSAL, Verdict.REFUSED),
        (b"SSH-2.0-OpenSSH", Verdict.REFUSED),
    ],
)
def test_answers_to_an_active_handshake(data: bytes, verdict: Verdict) -> None:
    machine = active()
    assert feed(machine, data)[0] is verdict
    assert bool(machine.error) == (verdict is Verdict.REFUSED)


def test_a_machine_that_is_over_stays_over() -> None:
    machine = active()
    feed(machine, hello(ctype=3))
    assert machine.feed(b"more") is Verdict.REFUSED


NEAR_MISSES = [
    ConnRequest.to(US.nid).pack() + hello(version, ctype=ctype, order=order)
    for version in (2, 3, 4)
    for ctype in (-1, 0, 1, 2, 3)
    for order in ("little", "big")
]


@st.composite
def mangled(draw: st.DrawFn) -> bytes:
    """A good exchange with bytes changed, cut or added: deeper than noise gets."""
    data = bytearray(draw(st.sampled_from(NEAR_MISSES)))
    for _ in range(draw(st.integers(0, 3))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))]) + draw(st.binary(max_size=20))


@given(st.one_of(st.binary(max_size=200), mangled()), st.lists(st.integers(1, 30), min_size=1))
def test_no_bytes_confuse_the_passive_side(data: bytes, sizes: list[int]) -> None:
    machine = PassiveHandshake()
    at = turn = 0
    verdict = Verdict.MORE
    while at < len(data) and verdict is Verdict.MORE:
        assert 0 < machine.want <= 128, "what it reads is bounded"
        size = min(machine.want, sizes[turn % len(sizes)])
        verdict = machine.feed(data[at : at + size])
        at += size
        turn += 1
        if verdict is Verdict.REQUEST:
            machine.accept_request(US)
            verdict = Verdict.MORE
    assert verdict in (Verdict.MORE, Verdict.HELLO, Verdict.REFUSED)
    assert (verdict is Verdict.REFUSED) == bool(machine.error)
    if verdict is Verdict.HELLO:
        assert machine.ctype is not ConnType.NONE
        machine.answer(machine.ctype)
        machine.answer(ConnType.NONE)


@given(st.one_of(st.binary(max_size=100), mangled().map(lambda data: data[16:])))
def test_no_bytes_confuse_the_active_side(data: bytes) -> None:
    for machine in (active(), active(2), active(4)):
        verdict, _ = feed(machine, data)
        assert verdict is not Verdict.REQUEST
        assert (verdict is Verdict.REFUSED) == bool(machine.error)
        if verdict is Verdict.MORE:
            assert 0 < machine.want <= 128


def test_more_bytes_than_wanted_are_refused() -> None:
    assert PassiveHandshake().feed(bytes(5)) is Verdict.REFUSED


@pytest.mark.parametrize("given", [0, 6, 20, 40])
def test_a_handshake_that_ends_early_leaves_no_cycle(given: int) -> None:
    """Each attempt to connect that was refused had left one."""
    call = ConnRequest.to(US.nid).pack() + hello()
    with left_in_cycles() as found:
        for _ in range(100):
            feed(PassiveHandshake(), call[:given])
            feed(ActiveHandshake(US, PEER, LNET_PID, ConnType.CONTROL, 3), hello()[:given])
    for one in ("PassiveHandshake", "ActiveHandshake"):  # a few may be of what other tests had
        assert found.count(one) < 50, one

"""What somebody may do within TLS: floods of records, certificates that are good for something else."""

from __future__ import annotations

import _ssl
import ctypes
import errno
import fcntl
import gc
import os
import random
import socket
import struct
import termios
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lnd.conftest import Addresses
from lnd.kit import Side, dial, shake, until
from ulnet.cli.pki import _private, _public, make_authority, make_node
from ulnet.lnd.tcp import certificate, secure_socket
from ulnet.lnd.tcp.certificate import certificate_of
from ulnet.lnd.tcp.secure import Credentials, Security
from ulnet.lnd.tcp.secure_socket import MOST_PIECE, SecureSocket
from ulnet.nid import Nid

NID = "10.0.0.2@tcp"
_SET_GROUPS = 92  # SSL_CTRL_SET_GROUPS_LIST
SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
Pair = tuple[SecureSocket, SecureSocket]


class Issuer:
    """Who signs certificates: an authority, or whoever takes himself for one."""

    def __init__(self, certificate: Any, key: Any, chain: bytes = b"") -> None:
        self.certificate = certificate
        self.key = key
        self.chain = chain  # goes with what it signs

    def issue(
        self, *, ca: bool = False, uses: tuple[Any, ...] = (SERVER, CLIENT), days: tuple[int, int] = (-1, 9)
    ) -> Issuer:
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, os.urandom(4).hex())]))
            .issuer_name(self.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + timedelta(days=days[0]))
            .not_valid_after(now + timedelta(days=days[1]))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.UniformResourceIdentifier(f"lnet:{NID}")]), False
            )
        )
        if uses and not ca:
            builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        made = builder.sign(self.key, hashes.SHA256())
        return Issuer(made, key, _public(made) + self.chain)

    def files(self, authority: Path, out: Path) -> str:
        out.mkdir()
        (out / "ca.pem").write_bytes((authority / "ca.pem").read_bytes())
        (out / "node.pem").write_bytes(self.chain)
        (out / "node.key").write_bytes(_private(self.key))
        (out / "node.key").chmod(0o600)
        return str(out)


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    make_authority(tmp_path / "ca", "site")
    return tmp_path / "ca"


@pytest.fixture
def root(authority: Path) -> Issuer:
    """An authority that lets others sign, as sites may have it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "root")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=9))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (authority / "ca.pem").write_bytes(_public(made))
    return Issuer(made, key)


def credentials(directory: str) -> Credentials:
    return Credentials(directory, time.monotonic, lambda line: None)


def shaken(caller: Credentials, listener: Credentials) -> tuple[str, str]:
    """What each end says of a handshake: "" where it is content."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
    ours.setblocking(False)
    theirs.setblocking(False)
    ends = caller.secure(ours), listener.secure(theirs, listening=True)
    words = ["?", "?"]
    try:
        for _ in range(200):
            for at, end in enumerate(ends):
                if words[at] == "?":
                    try:
                        words[at] = "?" if shake(end) else ""
                    except OSError as failed:
                        words[at] = str(failed)
            if "?" not in words:
                break
            time.sleep(0.001)
        # TLS 1.3: who calls hears that he is refused when he reads.
        return words[0], words[1]
    finally:
        for end in ends:
            end.close()


CASES: dict[str, tuple[Callable[[Issuer], Issuer], str, str]] = {
    "an intermediate authority": (lambda root: root.issue(ca=True).issue(), "", ""),
    "both uses": (lambda root: root.issue(), "", ""),
    "no uses named": (lambda root: root.issue(uses=()), "", ""),
    "a node that signs": (lambda root: root.issue().issue(), "not good", "not good"),
    "an expired intermediate": (
        lambda root: root.issue(ca=True, days=(-3, -1)).issue(),
        "has expired",
        "has expired",
    ),
    "not good yet": (lambda root: root.issue(days=(1, 9)), "not yet valid", "not yet valid"),
    "for servers alone": (lambda root: root.issue(uses=(SERVER,)), "", "purpose"),
    "for clients alone": (lambda root: root.issue(uses=(CLIENT,)), "purpose", ""),
}


@pytest.mark.parametrize("case", CASES)
def test_certificates_are_good_for_what_they_say(
    root: Issuer, authority: Path, tmp_path: Path, case: str
) -> None:
    """Of a listener, and of a caller."""
    make, to_caller, to_listener = CASES[case]
    good = credentials(root.issue().files(authority, tmp_path / "good"))
    other = credentials(make(root).files(authority, tmp_path / "other"))
    for words, expected in (
        (shaken(good, other)[0], to_caller),
        (shaken(other, good)[1], to_listener),
    ):
        assert expected in words if expected else not words, words


@pytest.mark.pure
def test_names_that_are_no_text_are_refused(
    root: Issuer, authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's ssl raises a UnicodeDecodeError for them, which is no OSError."""

    def odd(fields: dict[str, Any]) -> Any:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    good = credentials(root.issue().files(authority, tmp_path / "good"))
    monkeypatch.setattr(certificate, "certificate_of", odd)
    assert all("names that are no text" in words for words in shaken(good, good))


@pytest.fixture
def pair(authority: Path, tmp_path: Path) -> Iterator[Pair]:
    """Both ends of a connection, over TCP."""
    make_node(authority, tmp_path / "node", [NID])
    ours = credentials(str(tmp_path / "node"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        calling = socket.create_connection(listening.getsockname())
        called, _ = listening.accept()
    calling.setblocking(False)
    called.setblocking(False)
    a, b = ours.secure(calling), ours.secure(called, listening=True)
    while any([shake(a), shake(b)]):
        pass
    yield a, b
    a.close()
    b.close()


def filled(a: SecureSocket, payload: bytes) -> int:
    """Send records of that payload until there is no room."""
    count = 0
    try:
        while count < 5000:
            a.send(payload)
            count += 1
    except BlockingIOError:
        pass
    return count


def unread(end: socket.socket) -> int:
    """Bytes that the kernel has for it."""
    return int(struct.unpack("i", fcntl.ioctl(end.fileno(), termios.FIONREAD, bytes(4)))[0])


def test_small_records_are_no_endless_turn(pair: Pair) -> None:
    """Each has four bytes: a call takes some, and leaves the others to the next."""
    a, b = pair
    count = 4 * filled(a, b"abcd")
    assert count > 4000
    buffer = bytearray(1 << 20)
    got = 0
    while got < count:
        size = b.recv_into(buffer)
        assert size <= 4 * (16384 // 26 + 1)
        got += size
    with pytest.raises(BlockingIOError):
        b.recv_into(buffer)


@pytest.mark.parametrize("size", [4, 24, 96])
def test_pieces_are_short_where_records_are_small(pair: Pair, size: int) -> None:
    """A call read 43,690 of them, for 0.14 s, where there was room for 1 MiB."""
    a, b = pair
    for end in (a, b):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    data, buffer = bytes(200_000), bytearray(1 << 20)
    sent = 0
    while sent < len(data):  # what is much payload makes pieces longer
        sent += a.send(memoryview(data)[sent:])
        with suppress(BlockingIOError):
            b.recv_into(buffer)
    with suppress(BlockingIOError):
        while True:
            b.recv_into(buffer)
    left = size * filled(a, bytes(size))
    while unread(b) < MOST_PIECE:
        pass  # the first piece is whole, so that those behind it are shorter
    calls = 0
    while left:
        try:
            got = b.recv_into(buffer)
        except BlockingIOError:
            continue  # the rest is with the other end's kernel
        left -= got
        calls += 1
        assert calls == 1 or got <= size * (16384 // (size + 22) + 1)
    assert calls > 3


@pytest.mark.pure
@pytest.mark.parametrize("when", [1, 2, 3])
def test_bytes_for_which_the_kernel_has_no_memory_leave_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, when: int
) -> None:
    """They are tried again, as the sender does it then."""
    a, b = pair
    real, calls = secure_socket._transmit, 0

    def short(sock: SecureSocket, data: memoryview, flags: int = 0) -> int:
        nonlocal calls
        calls += 1
        if calls == when:
            raise OSError(errno.ENOBUFS, "no buffers")
        return real(sock, data[:30_000], flags)

    monkeypatch.setattr(secure_socket, "_transmit", short)
    data = b"".join(number.to_bytes(4, "little") for number in range(20_000))
    sent, got, buffer = 0, b"", bytearray(1 << 20)
    failed = 0
    while len(got) < len(data):
        if sent < len(data):
            try:
                sent += a.send(memoryview(data)[sent:])
            except OSError as error:
                failed += 1
                assert isinstance(error, BlockingIOError) or error.errno == errno.ENOBUFS  # noqa: PT017
        with suppress(BlockingIOError):
            got += bytes(buffer[: b.recv_into(buffer)])
    assert got == data
    assert failed <= 1


@pytest.mark.parametrize("end", ["open", "closed", "reset"])
def test_a_short_record_at_the_end_of_a_piece_is_read(pair: Pair, end: str) -> None:
    """It looks like the beginning of one that is as long as that before it."""
    a, b = pair
    a.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sizes = (15_000, 16_384 - 15_022 - 22)
    for size in sizes:
        a.send(bytes(size))
    if end == "reset":
        b.send(b"unread")
    if end != "open":
        a.close()
    buffer = bytearray(20_000)
    assert b.recv_into(buffer) == sum(sizes)
    if end == "closed":
        assert b.recv_into(buffer) == 0
    else:
        with pytest.raises(BlockingIOError if end == "open" else ConnectionResetError):
            b.recv_into(buffer)


def test_a_reset_comes_behind_what_is_whole(pair: Pair) -> None:
    """As on plain connections: it may have been acknowledged by TCP."""
    a, b = pair
    buffer, tail = bytearray(40_000), bytearray(96)
    a.send(bytes(len(buffer)))
    b.send(b"unread")  # so that closing is a reset
    a.close()
    assert b.recvmsg_into([buffer, tail])[0] == len(buffer)
    with pytest.raises(ConnectionResetError):
        b.recv_into(tail)


def test_tiny_records_end_a_connection(pair: Pair) -> None:
    """Those of one byte cost as much time as whole ones."""
    a, b = pair
    count = filled(a, b"x")
    assert count == 5000
    calls = 0

    def step() -> None:
        nonlocal calls
        calls += 1

    assert "no payload, or are tiny" in ended(b, step, count)
    assert calls < 10


class RawTls:
    """OpenSSL itself, for what Python's ssl does not send. Its calls block."""

    def __init__(self, sock: socket.socket, directory: Path, groups: bytes = b"") -> None:
        pointer = ctypes.c_void_p
        lib = ctypes.CDLL(_ssl.__file__)
        for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
            getattr(lib, name).restype = pointer
        context = pointer(lib.SSL_CTX_new(pointer(lib.TLS_client_method())))
        if groups:
            assert lib.SSL_CTX_ctrl(context, _SET_GROUPS, 0, groups) == 1
        own, key = (str(directory / name).encode() for name in ("node.pem", "node.key"))
        assert lib.SSL_CTX_use_certificate_chain_file(context, own) == 1
        assert lib.SSL_CTX_use_PrivateKey_file(context, key, 1) == 1
        self._lib, self._tls = lib, pointer(lib.SSL_new(context))
        assert lib.SSL_set_fd(self._tls, sock.fileno()) == 1

    def connect(self) -> bool:
        """The handshake; whether it came to an end."""
        return bool(self._lib.SSL_connect(self._tls) == 1)

    def write(self, data: bytes) -> None:
        """A record with that payload."""
        assert self._lib.SSL_write(self._tls, data, len(data)) == len(data)

    def pad(self, size: int) -> None:
        """Pad records to a multiple of so many bytes."""
        assert self._lib.SSL_set_block_padding(self._tls, ctypes.c_size_t(size)) == 1

    def update_key(self, ask: bool) -> None:
        """A record with a key update, which may ask for another one."""
        assert self._lib.SSL_key_update(self._tls, int(ask)) == 1
        assert self._lib.SSL_do_handshake(self._tls) == 1


def by_tcp() -> tuple[socket.socket, socket.socket]:
    """Who calls, and who is called."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        calling = socket.create_connection(listening.getsockname())
        called, _ = listening.accept()
    calling.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return calling, called


@pytest.fixture(params=[by_tcp], ids=["tcp"])
def foe(
    request: pytest.FixtureRequest, authority: Path, tmp_path: Path
) -> Iterator[tuple[RawTls, SecureSocket, socket.socket]]:
    """OpenSSL at one end, with a certificate that is good, and ours at the other."""
    try:
        _ = ctypes.CDLL(_ssl.__file__).SSL_key_update
    except (AttributeError, OSError):
        pytest.skip("this Python does not show its OpenSSL: use one that is linked with the system's")
    make_node(authority, tmp_path / "node", [NID])
    calling, called = request.param()
    raw = RawTls(calling, tmp_path / "node")
    ours = credentials(str(tmp_path / "node")).secure(called, listening=True)
    with ThreadPoolExecutor(1) as aside:
        connected = aside.submit(raw.connect)
        while shake(ours):
            pass
        assert connected.result()
    ours.setblocking(False)
    yield raw, ours, calling
    ours.close()
    calling.close()


@pytest.mark.parametrize(
    ("groups", "words"),
    [(b"P-256", ""), (b"X25519:P-256", ""), (b"ffdhe8192", "no suitable key share")],
)
def test_hellos_that_take_long_to_answer_are_refused(
    authority: Path, tmp_path: Path, groups: bytes, words: str
) -> None:
    """A key exchange of group ffdhe8192 takes who is called 0.2 s, and a caller that repeats it nothing."""
    try:
        _ = ctypes.CDLL(_ssl.__file__).SSL_CTX_ctrl
    except (AttributeError, OSError):
        pytest.skip("this Python does not show its OpenSSL: use one that is linked with the system's")
    make_node(authority, tmp_path / "node", [NID])
    calling, called = by_tcp()
    raw = RawTls(calling, tmp_path / "node", groups)
    with (
        credentials(str(tmp_path / "node")).secure(called, listening=True) as ours,
        ThreadPoolExecutor(1) as aside,
        calling,
    ):
        connected = aside.submit(raw.connect)
        why = ""
        try:
            while shake(ours):
                pass
        except OSError as refused:
            why = str(refused)
        assert (words in why) if words else not why, why
        assert connected.result() == (not words)


def accepted(authority: Path, directory: Path) -> tuple[SecureSocket, socket.socket]:
    """A connection whose handshake is to begin, and its plain caller."""
    make_node(authority, directory, [NID])
    calling, called = by_tcp()
    return credentials(str(directory)).secure(called, listening=True), calling


def test_a_handshake_that_fails_leaves_nothing_to_search_for(authority: Path, tmp_path: Path) -> None:
    """The error of its last step had a frame that held the socket, and OpenSSL's memory with it."""
    ours, calling = accepted(authority, tmp_path / "node")
    with calling:
        calling.sendall(b"\x16\x03\x01\x00\x04none")
        with pytest.raises(OSError, match="TLS failed"):
            shake(ours)
        left = weakref.ref(ours)
        ours.close()
        gc.disable()
        try:
            del ours
            assert left() is None
        finally:
            gc.enable()


def test_bytes_that_come_one_by_one_have_few_steps(authority: Path, tmp_path: Path) -> None:
    ours, calling = accepted(authority, tmp_path / "node")
    with calling, ours:
        calling.send(b"\x16\x03\x01\x3f")
        for _ in range(128):
            calling.send(b"\x00")
            assert ours.shake() == "work"
            ours.work()
        with pytest.raises(OSError, match="longer than"):
            ours.shake()


def test_the_step_of_a_socket_that_was_closed_is_not_taken(authority: Path, tmp_path: Path) -> None:
    ours, calling = accepted(authority, tmp_path / "node")
    with calling:
        calling.sendall(b"\x16\x03\x01\x00\x04none")
        assert ours.shake() == "work"
        ours.close()
        ours.work()
        assert ours.shake() == "work"


def ended(ours: SecureSocket, step: Callable[[], None], most: int) -> str:
    """Why a connection ends, within so many steps of its other side."""
    buffer = bytearray(1 << 20)
    try:
        for _ in range(most):
            step()
            with suppress(BlockingIOError):
                ours.recv_into(buffer)
    except OSError as failed:
        return f"{errno.errorcode[failed.errno or 0]}: {failed.strerror}"
    return ""


def lengthen_pieces(foe: tuple[RawTls, SecureSocket, socket.socket]) -> None:
    """Send what is much payload: it is received in pieces of full length then."""
    raw, ours, calling = foe
    calling.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    buffer = bytearray(1 << 20)
    for _ in range(16):
        raw.write(bytes(16_384))
        with suppress(BlockingIOError):
            ours.recv_into(buffer)


@pytest.mark.parametrize("ask", [False, True], ids=["", "answers-asked-for"])
def test_key_updates_end_a_connection(foe: tuple[RawTls, SecureSocket, socket.socket], ask: bool) -> None:
    """OpenSSL takes them without an end, and does not return while there are more."""
    raw, ours, _ = foe
    for _ in range(5):
        raw.update_key(ask)
    raw.write(b"good")
    buffer = bytearray(1 << 20)
    assert ours.recv_into(buffer) == 4
    assert "EPROTO: most of what it sends are records of TLS that are no payload" in ended(
        ours, lambda: raw.update_key(ask), 5000
    )


@pytest.mark.parametrize("beside", [2000, 16384])
def test_no_payload_pays_for_many_key_updates(
    foe: tuple[RawTls, SecureSocket, socket.socket], beside: int
) -> None:
    """Each takes 40 us: beside payload that paid for their bytes, those of one connection took all time."""
    raw, ours, _ = foe

    def step() -> None:
        raw.write(bytes(beside))
        for _ in range(10):
            raw.update_key(False)

    assert "EPROTO: most of what it sends are records of TLS that are no payload" in ended(ours, step, 40)


@pytest.mark.parametrize("foe", [socket.socketpair], ids=["socketpair"], indirect=True)
@pytest.mark.parametrize("first", [4, 9000])
def test_of_many_key_updates_few_are_taken(
    foe: tuple[RawTls, SecureSocket, socket.socket], first: int
) -> None:
    """A piece has room for 2,400: a call took 0.1 s. As many are taken as are answered."""
    raw, ours, calling = foe
    lengthen_pieces(foe)
    buffer = bytearray(1 << 20)
    raw.write(bytes(first))
    count = 0
    calling.setblocking(False)
    with suppress(AssertionError):  # no room for more
        while count < 2400:
            raw.update_key(True)
            count += 1
    assert count > 200
    assert ours.recv_into(buffer) == first
    with pytest.raises(OSError, match="no payload"):
        ours.recv_into(buffer)
    assert unread(calling) <= 4096 + 100


@pytest.mark.parametrize("foe", [socket.socketpair], ids=["socketpair"], indirect=True)
@pytest.mark.parametrize(("first", "updates", "steps"), [(1, 1, 6), (10_000, 3, 3)])
def test_each_of_several_long_key_updates_counts(
    foe: tuple[RawTls, SecureSocket, socket.socket], first: int, updates: int, steps: int
) -> None:
    """OpenSSL is given long records together, and says of all that have no payload the same."""
    raw, ours, _ = foe
    lengthen_pieces(foe)

    def step() -> None:
        raw.write(bytes(first))
        raw.pad(8192)
        for _ in range(updates):
            raw.update_key(False)
        raw.pad(0)
        raw.write(bytes(10_000))  # pays for their bytes, not for their time

    assert "no payload" in ended(ours, step, steps)  # five of them are too many


def test_key_updates_of_long_streams_are_in_order(foe: tuple[RawTls, SecureSocket, socket.socket]) -> None:
    """Who changes keys often does so after gigabytes, and OpenSSL by itself never."""
    raw, ours, _ = foe

    def step() -> None:
        raw.update_key(False)
        raw.write(bytes(120_000))

    assert not ended(ours, step, 500)


@pytest.mark.parametrize("size", [512, 4096, 16384])
def test_a_key_update_that_is_padded_is_in_order(
    foe: tuple[RawTls, SecureSocket, socket.socket], size: int
) -> None:
    """One of a long record ended a connection, whatever its payload had been before."""
    raw, ours, _ = foe
    raw.pad(size)

    def step() -> None:
        raw.update_key(False)
        raw.write(bytes(100_000))

    assert not ended(ours, step, 3)


@pytest.mark.parametrize("nids", [1, 100, 400])
def test_session_tickets_are_in_order(authority: Path, tmp_path: Path, nids: int) -> None:
    """Listeners that are not ours send two behind the handshake, and the caller's certificate in each."""
    make_node(authority, tmp_path / "node", [f"10.{one // 250}.{one % 250}.2@tcp" for one in range(nids)])
    ours = credentials(str(tmp_path / "node"))
    ours.listener.num_tickets = 2
    calling, called = by_tcp()
    calling.setblocking(False)
    called.setblocking(False)
    with ours.secure(calling) as a, ours.secure(called, listening=True) as b:
        while any([shake(a), shake(b)]):
            pass
        b.send(b"good")
        while unread(a) < 1000:
            pass
        got, buffer = 0, bytearray(100)
        while not got:
            with suppress(BlockingIOError):
                got = a.recv_into(buffer)
        assert got == 4


@pytest.mark.parametrize(
    "header", [b"GET / HTTP/1.0\r\n\r\n", b"\x17\x03\x03\xff\xff", b"\x18\x03\x03\0\x20"]
)
def test_what_is_no_record_ends_a_connection_at_once(
    foe: tuple[RawTls, SecureSocket, socket.socket], header: bytes
) -> None:
    """It was kept until there was as much as it said."""
    _, ours, calling = foe
    calling.sendall(header)
    while not unread(ours):
        pass
    with pytest.raises(OSError, match=r"Errno 71"):
        ours.recv_into(bytearray(100))


def test_what_comes_right_behind_a_handshake_is_read(authority: Path, tmp_path: Path) -> None:
    """A listener receives it with the end of that."""
    make_node(authority, tmp_path / "node", [NID])
    ours = credentials(str(tmp_path / "node"))
    calling, called = by_tcp()
    calling.setblocking(False)
    called.setblocking(False)
    with ours.secure(calling) as a, ours.secure(called, listening=True) as b:
        while shake(a):
            shake(b)
        before = unread(b)
        a.send(b"good")
        a.send(b"more")
        while unread(b) < before + 2 * 26:
            pass
        while shake(b):
            pass
        assert b.pending() == 2 * 26
        buffer = bytearray(100)
        assert b.recv_into(buffer) == 8
        assert buffer.startswith(b"goodmore")


@pytest.mark.pure
@pytest.mark.parametrize("most", [1, 3, 5, 26, 1000, 20_000])
def test_records_are_whole_however_they_come(
    foe: tuple[RawTls, SecureSocket, socket.socket], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Cut within their headers, or with what has no room kept for the next call."""
    raw, ours, _ = foe
    real = secure_socket._receive
    monkeypatch.setattr(secure_socket, "_receive", lambda sock, view, size: real(sock, view, min(size, most)))
    sizes = [1, 40, 700, 16_384, 3, 5000]
    sent = b""
    for number, size in enumerate(sizes):
        data = bytes([number + 1]) * size
        raw.update_key(False)
        raw.write(data)
        sent += data
    got, room = b"", bytearray(977)
    while len(got) < len(sent):
        with suppress(BlockingIOError):
            count = ours.recv_into(room)
            assert count
            got += room[:count]
    assert got == sent
    with pytest.raises(BlockingIOError):
        ours.recv_into(room)
    assert not ours.pending()


@pytest.mark.pure
@pytest.mark.parametrize("foe", [socket.socketpair], ids=["socketpair"], indirect=True)
@pytest.mark.parametrize("seed", range(8))
def test_large_records_are_whole_whatever_room_there_is(
    foe: tuple[RawTls, SecureSocket, socket.socket], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Several are given to OpenSSL at once: none of them stays there while the next call waits for more."""
    raw, ours, calling = foe
    chance = random.Random(seed)
    monkeypatch.setattr(secure_socket, "_DEAR", 0)  # else so many key updates end the connection
    monkeypatch.setattr(secure_socket, "_BEYOND", 1 << 20)
    real = secure_socket._receive
    monkeypatch.setattr(
        secure_socket,
        "_receive",
        lambda sock, view, size: real(sock, view, min(size, chance.choice([17, 9000, 30_000, 65_536]))),
    )
    calling.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    ours.setblocking(False)
    room = bytearray(1 << 18)
    for _ in range(40):
        sent = b""
        for number in range(chance.randrange(1, 8)):
            if not chance.randrange(4):
                raw.pad(chance.choice([0, 16_384]))
                raw.update_key(False)
                raw.pad(0)
            data = bytes([number + 1]) * chance.choice([16_384, 16_384, 8192, 9000, 500])
            raw.write(data)
            sent += data
        got = b""
        while len(got) < len(sent):
            size = chance.choice([1, 96, 8192, 16_384, 16_400, 24_600, 50_000, 1 << 18])
            with memoryview(room)[:size] as view:
                count = ours.recv_into(view)  # all has come: a BlockingIOError here is one for ever
            assert count
            got += room[:count]
        assert got == sent
        with pytest.raises(BlockingIOError):
            ours.recv_into(room)
        assert not ours.pending()


@pytest.mark.pure
@pytest.mark.parametrize("foe", [socket.socketpair], ids=["socketpair"], indirect=True)
def test_who_does_not_read_what_key_updates_are_answered_with_is_cut_off(
    foe: tuple[RawTls, SecureSocket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer waits here, though the payload beside them pays for the questions.

    Not by TCP: where small segments have filled a receiver's memory, Linux may shrink the window to nothing
    and drop all that comes then, acknowledgements too, so that neither side's data get through any more.
    """
    raw, ours, _ = foe
    monkeypatch.setattr(secure_socket, "_DEAR", 0)  # else it takes 500 MB of payload
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    most = 0

    def step() -> None:
        nonlocal most
        raw.update_key(True)
        raw.write(b"payload")
        most = max(most, ours._out.pending + len(ours._rest))

    assert ended(ours, step, 100_000).startswith("EPROTO: it does not read")
    assert 100_000 < most < 170_000


async def test_a_request_for_tls_in_tiny_records_is_refused_at_once(
    make: Callable[..., Side], at: Addresses, authority: Path, tmp_path: Path
) -> None:
    """Nobody has shown a certificate yet; 130,000 records of one byte kept the node for 0.2 s."""
    make_node(authority, tmp_path / "node", [at.nid(1)])
    a = make(at.nid(1), tunables={"security": int(Security.REQUIRE)}, credentials=str(tmp_path / "node"))
    hello = b"\1" + (130_000).to_bytes(3, "big") + b"\3\3" + bytes(8000)
    raw = await dial(a, at.ip(2))
    await raw.send(b"".join(b"\x16\3\1\0\1" + hello[one : one + 1] for one in range(len(hello))))
    await until(lambda: any("longer than 32768 bytes" in line for line in a.reports))
    await raw.refused()


def test_a_key_that_every_user_can_read_is_told(root: Issuer, authority: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    directory = tmp_path / "node"
    root.issue().files(authority, directory)
    key = directory / "node.key"
    key.chmod(0o640)
    used = Credentials(str(directory), lambda: 0.0, lines.append)
    assert not lines, "a group of its own may read it"
    key.chmod(0o644)
    Credentials(str(directory), lambda: 0.0, lines.append)
    assert len(lines) == 1 and f"chmod o-rwx {key}" in lines[0]
    used._looked = -10.0
    (directory / "node.key").touch()
    used.refresh()
    assert len(lines) == 3 and "read anew" in lines[1] and "chmod o-rwx" in lines[2]


def test_files_that_are_half_written_or_old_do_not_take_the_place_of_good_ones(
    root: Issuer, authority: Path, tmp_path: Path
) -> None:
    """Whatever is there at a look: what was read before stays, and what is whole later is read."""
    lines: list[str] = []
    directory = tmp_path / "node"
    root.issue().files(authority, directory)
    used = Credentials(str(directory), lambda: 0.0, lines.append)
    before = used.own

    def look() -> None:
        used._looked = -10.0
        used.refresh()

    new, pem = root.issue(days=(-1, 30)), directory / "node.pem"
    pem.write_bytes(b"")
    moment = os.stat(pem)
    look()
    assert used.own == before and "stay in use" in lines[-1]
    pem.write_bytes(new.chain)
    os.utime(pem, ns=(moment.st_atime_ns, moment.st_mtime_ns))  # in the same tick of the clock
    look()
    assert used.own == before and "stay in use" in lines[-1] and len(lines) == 2, "the key is the old one's"
    (directory / "node.key").write_bytes(_private(new.key))
    look()
    assert used.own.name != before.name and "read anew" in lines[-1]
    old = root.issue(days=(-9, -1))
    pem.write_bytes(old.chain)
    (directory / "node.key").write_bytes(_private(old.key))
    before = used.own
    look()
    assert used.own == before and "has expired" in lines[-1]
    assert shaken(used, used) == ("", "")


async def test_a_certificate_for_other_nids_does_not_take_the_place_of_a_good_one(
    make: Callable[..., Side], at: Addresses, authority: Path, tmp_path: Path
) -> None:
    """All peers would refuse it; a net that is off, or gone, needs none."""
    directory = tmp_path / "node"
    make_node(authority, directory, [at.nid(1), at.nid(2)])
    tunables = {"security": int(Security.REQUIRE)}
    a = make(at.nid(1), tunables=tunables, credentials=str(directory))
    used = a.lnd._shared.credentials
    assert used is not None and used.needed == {Nid.parse(at.nid(1))}
    before = used.own

    def look() -> None:
        used._looked = -10.0
        used.refresh()

    make_node(authority, directory, [at.nid(2)])
    look()
    assert used.own is before and f"is not for {at.nid(1)}: that read before stays" in a.reports[-1]
    make_node(authority, directory, [at.nid(1)])
    look()
    assert used.own.covers(Nid.parse(at.nid(1))) and used.own is not before and "read anew" in a.reports[-1]
    a.lnd.shutdown(a.ni)
    assert not used.needed
    make_node(authority, directory, [at.nid(2)])
    look()
    assert used.own.covers(Nid.parse(at.nid(2))) and "read anew" in a.reports[-1]


async def test_a_certificate_that_was_refused_is_of_use_to_the_nid_that_comes_next(
    make: Callable[..., Side], at: Addresses, authority: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "node"
    make_node(authority, directory, [at.nid(1)])
    a = make(at.nid(1), tunables={"security": int(Security.REQUIRE)}, credentials=str(directory))
    used = a.lnd._shared.credentials
    assert used is not None
    make_node(authority, directory, [at.nid(2)])
    used.look()
    used.look()
    assert sum("stays in use" in line for line in a.reports) == 1
    a.lnd.shutdown(a.ni)
    a.lnd._shared.need_credentials(Nid.parse(at.nid(2)))
    assert used.own.covers(Nid.parse(at.nid(2)))


def test_certificates_without_end_end_the_handshake(root: Issuer, authority: Path, tmp_path: Path) -> None:
    """They are read before anybody knows who sends them: 75 kB of them took 0.08 s."""
    good = credentials(root.issue().files(authority, tmp_path / "good"))
    last = root.issue(ca=True)
    for _ in range(120):
        last = last.issue(ca=True)
    other = credentials(last.issue().files(authority, tmp_path / "other"))
    for caller, listener, at in ((good, other, 0), (other, good, 1)):
        assert "longer than 32768 bytes" in shaken(caller, listener)[at]
    few = root.issue(ca=True).issue(ca=True).issue()
    assert shaken(good, credentials(few.files(authority, tmp_path / "few"))) == ("", "")


def test_of_thousands_of_names_some_count() -> None:
    """They are looked at for each connection, and for messages of others."""
    names = [("URI", f"lnet:10.0.{at >> 8}.{at & 255}@tcp") for at in range(6000)]
    found = certificate_of({"subjectAltName": names, "notAfter": "Jan  1 00:00:00 2040 GMT"})
    assert len(found.nids) == 1024
    assert found.covers(Nid.parse("10.0.3.255@tcp"))
    assert not found.covers(Nid.parse("10.0.4.0@tcp"))


def test_no_certificate_is_made_with_names_that_do_not_count(authority: Path, tmp_path: Path) -> None:
    nids = [f"10.0.{at >> 8}.{at & 255}@tcp" for at in range(1025)]
    with pytest.raises(ValueError, match="write patterns"):
        make_node(authority, tmp_path / "node", nids)
    make_node(authority, tmp_path / "node", nids[:1024])
    assert shaken(*[credentials(str(tmp_path / "node"))] * 2) == ("", "")


def test_a_certificate_is_read_once_for_each_connection(pair: Pair) -> None:
    a, b = pair
    assert a.certificate is a.certificate
    assert str(b.certificate.nids[0]) == NID

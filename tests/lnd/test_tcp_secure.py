"""Secured connections: who is let in, what is never plain, and that nothing is lost in between."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lnd.conftest import Addresses
from lnd.kit import (
    ROOT,
    RawListener,
    RawPeer,
    Side,
    connect,
    dial,
    hello_bytes,
    linked,
    lnet_frame,
    put_header,
    shake,
    turns,
    until,
)
from support.examples import examples
from ulnet.cli.pki import make_authority, make_node
from ulnet.core.status import HealthStatus, LNetError
from ulnet.lnd.tcp.alerts import words_of
from ulnet.lnd.tcp.errors import Failure
from ulnet.lnd.tcp.nistate import REMEMBERED, keep
from ulnet.lnd.tcp.secure import FIRST_BYTE, Credentials, Security
from ulnet.lnd.tcp.secure_socket import SecureSocket
from ulnet.nid import Nid
from ulnet.wire.acceptor import ConnRequest
from ulnet.wire.socklnd import ConnType

Make = Callable[..., Side]
OFF, OFFER, REQUIRE = ({"security": int(one)} for one in Security)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("site"))


async def blocking(call: Callable[..., Any], *args: object) -> Any:
    """Call something that blocks, in a thread that ends with it."""
    with ThreadPoolExecutor(1) as pool:
        return await asyncio.get_running_loop().run_in_executor(pool, call, *args)


class Site:
    """An authority, and the directories of nodes' credentials."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.count = 0
        make_authority(directory / "ca", "site")

    def node(self, *nids: str, days: int = 30) -> str:
        """The credentials of a node with these NIDs."""
        self.count += 1
        out = self.directory / str(self.count)
        make_node(self.directory / "ca", out, list(nids), days=days)
        return str(out)


def secure_kinds(side: Side, nid: Nid | str) -> list[bool]:
    """Which of the connections with a peer are secured."""
    return [conn.rx.secure for conn in side.peer(nid).conns]


async def exchange(a: Side, b: Side) -> None:
    """Messages of many sizes go both ways and arrive as they were."""
    before = len(a.core.arrivals), len(b.core.arrivals)
    sizes = [0, 1, 63, 1023, 1024, 4096, 16384, 20000, 70000, 1 << 20]
    payloads = [bytes(i % 251 for i in range(size)) for size in sizes]
    msgs = [one.put(other.ni.nid, payload) for payload in payloads for one, other in ((a, b), (b, a))]
    for one, msg in zip([a, b] * len(sizes), msgs, strict=True):
        assert (await one.ended(msg)).status is HealthStatus.OK
    for side, seen in zip((a, b), before, strict=True):
        await until(side.core.complete(seen + len(sizes)))
        assert sorted(bytes(one.memory) for one in side.core.arrivals[seen:]) == sorted(payloads)


@pytest.mark.parametrize("ours", [OFFER, REQUIRE])
@pytest.mark.parametrize("theirs", [OFFER, REQUIRE])
async def test_two_nodes_with_certificates(
    make: Make, at: Addresses, site: Site, ours: dict[str, int], theirs: dict[str, int]
) -> None:
    a = make(at.nid(1), tunables=ours, credentials=site.node(at.nid(1)))
    b = make(at.nid(2), tunables=theirs, credentials=site.node(at.nid(2)))
    await exchange(a, b)
    await linked(a, b)
    assert secure_kinds(a, b.ni.nid) == secure_kinds(b, a.ni.nid) == [True] * 3
    await exchange(a, b)


async def test_what_is_offered_to_nodes_that_know_nothing_of_it_ends_plain(
    make: Make, at: Addresses, site: Site
) -> None:
    """They hang up, as kernel nodes do, and are called anew; the next connections begin without."""
    a = make(at.nid(1), tunables=OFFER, credentials=site.node(at.nid(1)))
    b = make(at.nid(2))
    a.put(b.ni.nid, b"first")
    await until(b.core.complete(1))
    await exchange(a, b)
    await linked(a, b)
    assert secure_kinds(a, b.ni.nid) == [False] * 3
    assert a.state().plain.keys() == {b.ni.nid}
    assert len(b.reports) == 1
    assert any("hung up on TLS, and is called without" in line for line in a.reports)


async def test_a_node_that_knows_nothing_of_it_calls_one_that_offers(
    make: Make, at: Addresses, site: Site
) -> None:
    a = make(at.nid(1), tunables=OFFER, credentials=site.node(at.nid(1)))
    raw = await connect(a, at.nid(2))
    await raw.send(lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(2)), 4), b"fine"))
    await until(a.core.complete(1))


async def test_plain_callers_of_a_net_that_requires_security_are_refused(
    make: Make, at: Addresses, site: Site
) -> None:
    a = make(at.nid(1), tunables=REQUIRE, credentials=site.node(at.nid(1)))
    raw = await dial(a, at.ip(2))
    await raw.send(ConnRequest.to(a.ni.nid).pack() + hello_bytes(Nid.parse(at.nid(2)), a.ni.nid))
    await raw.refused()  # no HELLO: nothing that it says is heard
    words = f"refused {at.ip(2)}: {at.nid(2)} calls without TLS, and this net takes secured connections only"
    assert any(line.startswith(words) for line in a.reports)
    assert not a.lnd.open_connections
    assert "without security" not in "".join(a.reports)


async def test_who_resets_after_the_first_byte_of_tls_costs_no_descriptor(
    make: Make, at: Addresses, site: Site
) -> None:
    """Its descriptor's number goes to the next connection, which is heard: nothing of the former is left."""
    a = make(at.nid(1), tunables=REQUIRE, credentials=site.node(at.nid(1)))
    before = asyncio.get_running_loop().time()
    for _ in range(3):
        with socket.socket() as sock:
            sock.bind((at.ip(3), 0))
            sock.connect((at.ip(1), a.params.accept_port))
            sock.send(FIRST_BYTE)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await turns(20)
    await until(lambda: sum("hung up during the TLS handshake" in line for line in a.reports) == 3)
    assert asyncio.get_running_loop().time() - before < a.params.accept_timeout, "no timer ended them"
    b = make(at.nid(2), tunables=REQUIRE, credentials=site.node(at.nid(2)))
    await exchange(a, b)


async def test_a_plain_node_that_is_refused_for_it_reads_of_that_cause(
    make: Make, at: Addresses, site: Site
) -> None:
    make(at.nid(1), tunables=REQUIRE, credentials=site.node(at.nid(1)))
    b = make(at.nid(2), min_reconnectms=1)
    outcome = await b.ended(b.put(at.nid(1), b"x"))
    assert "it takes secured connections only" in outcome.reason


async def test_what_is_required_is_never_plain(make: Make, at: Addresses, site: Site) -> None:
    """Somebody in the middle who strips TLS, or a node without it: no byte of LNet is told to them."""
    a = make(at.nid(1), tunables=REQUIRE, credentials=site.node(at.nid(1)), min_reconnectms=1)
    listener = RawListener(at.ip(2), a.params.accept_port)
    msg = a.put(at.nid(2), b"secret")
    seen = []
    try:
        while not a.core.outcome(msg):
            try:
                async with asyncio.timeout(0.5):
                    raw = await listener.accept()
            except TimeoutError:
                continue
            seen.append(await raw.read(1))
            assert seen[-1] == FIRST_BYTE, "LNet's own bytes"
            raw.reset()
            await turns(20)
    finally:
        listener.close()
    assert seen
    outcome = await a.ended(msg)
    assert outcome.errno and "no secured connection" in outcome.reason


async def test_who_was_secured_once_is_not_plain_again(make: Make, at: Addresses, site: Site) -> None:
    """A downgrade: neither do we call a known peer without TLS, nor believe who calls by its name."""
    a = make(at.nid(1), tunables=OFFER, credentials=site.node(at.nid(1)), min_reconnectms=1)
    b = make(at.nid(2), tunables=OFFER, credentials=site.node(at.nid(2)))
    await exchange(a, b)
    b.lnd.shutdown(b.nis.pop(b.ni.nid))
    await until(lambda: not a.lnd.open_connections)
    raw = await dial(a, at.ip(2))
    await raw.send(ConnRequest.to(a.ni.nid).pack() + hello_bytes(Nid.parse(at.nid(2)), a.ni.nid))
    await raw.refused()
    assert any("were secured, and this one is not" in line for line in a.reports)
    listener = RawListener(at.ip(2), a.params.accept_port)
    msg = a.put(at.nid(2), b"secret")
    try:
        while not a.core.outcome(msg):
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    raw = await listener.accept()
                assert await raw.read(1) == FIRST_BYTE
                raw.reset()
    finally:
        listener.close()


async def test_who_was_secured_once_is_not_plain_with_another_ni_of_the_node(
    make: Make, at: Addresses, site: Site
) -> None:
    a = make(at.nid(1), tunables=OFFER, credentials=site.node(at.nid(1), at.nid(3)))
    b = make(at.nid(2), tunables=OFFER, credentials=site.node(at.nid(2)))
    await exchange(a, b)
    other = a.add(at.nid(3), tunables=OFFER)
    raw = await dial(a, at.ip(2), to=other.nid)
    await raw.send(ConnRequest.to(other.nid).pack() + hello_bytes(Nid.parse(at.nid(2)), other.nid))
    await raw.refused()
    assert any("were secured, and this one is not" in line for line in a.reports)
    assert a.state(other).secures(Nid.parse(at.nid(2)))
    assert not a.state(other).fall_back(Nid.parse(at.nid(2)))


def test_of_too_many_peers_who_was_heard_longest_ago_is_forgotten() -> None:
    """Whoever has certificates for many NIDs must not make a node forget at once who was secured."""
    nids = [Nid.parse(f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}@tcp") for i in range(REMEMBERED + 2)]
    first, second, third, *others = nids
    table: dict[Nid, None] = dict.fromkeys([first, second, third, *others[:-2]])
    keep(table, first, None)  # it is heard again
    keep(table, others[-2], None)
    keep(table, others[-1], None)
    assert len(table) == REMEMBERED
    assert first in table
    assert second not in table
    assert third not in table
    assert others[0] in table


async def refused_with(make: Make, at: Addresses, ours: str, theirs: str, words: str) -> Side:
    a = make(at.nid(1), tunables=REQUIRE, credentials=ours, min_reconnectms=1)
    b = make(at.nid(2), tunables=REQUIRE, credentials=theirs)
    outcome = await a.ended(a.put(at.nid(2), b"secret"))
    assert outcome.errno, "it was told what is secret"
    assert words in outcome.reason
    assert not b.core.arrivals and not b.lnd.open_connections
    return b


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("SSLV3_ALERT_CERTIFICATE_EXPIRED", "it ended TLS: our certificate has expired, by its clock"),
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "it ended TLS: it wants a certificate, and we have sent none"),
        ("TLSV1_ALERT_INTERNAL_ERROR", "it ended TLS by the alert 'internal error'"),
        ("WRONG_VERSION_NUMBER", "TLS failed: wrong version number"),
    ],
)
def test_alerts_of_the_other_side_in_words(reason: str, words: str) -> None:
    error = ssl.SSLError(1, "no words")
    error.reason = reason
    assert words_of(error).startswith(words)


def of_another_authority(site: Site, directory: Path, nid: str) -> str:
    """Credentials for a NID that another authority signed; whoever has them trusts the site's."""
    theirs = Path(Site(directory).node(nid))
    (theirs / "ca.pem").write_bytes((site.directory / "ca/ca.pem").read_bytes())
    return str(theirs)


async def test_the_certificate_of_another_authority(
    make: Make, at: Addresses, site: Site, tmp_path: Path
) -> None:
    """Only we look at it: it finds our certificate good."""
    theirs = of_another_authority(site, tmp_path, at.nid(2))
    b = await refused_with(make, at, site.node(at.nid(1)), theirs, "its certificate is not good: ")
    words = "it ended TLS: our certificate is of an authority that it does not trust"
    await until(lambda: any(words in line for line in b.reports))


async def test_a_certificate_that_has_expired(make: Make, at: Addresses, site: Site) -> None:
    theirs = site.node(at.nid(2), days=0)
    while True:
        now = time.time()
        await asyncio.sleep(0.01)
        if now > Credentials(theirs, time.monotonic, lambda line: None).own.expires:
            break
    await refused_with(make, at, site.node(at.nid(1)), theirs, "certificate has expired")


async def test_a_caller_whose_certificate_is_of_another_authority(
    make: Make, at: Addresses, site: Site, tmp_path: Path
) -> None:
    foe = of_another_authority(site, tmp_path, at.nid(1))
    a = make(at.nid(1), tunables=REQUIRE, credentials=foe, min_reconnectms=1)
    b = make(at.nid(2), tunables=REQUIRE, credentials=site.node(at.nid(2)))
    outcome = await a.ended(a.put(at.nid(2), b"believed?"))
    assert outcome.errno, "what it sent was taken"
    assert not b.core.arrivals
    assert any("its certificate is not good" in line for line in b.reports)
    words = (
        "our certificate is of an authority that it does not trust",
        "it does not accept our certificate",
    )
    assert any(text in outcome.reason for text in words), outcome.reason


@pytest.mark.pure
async def test_a_listener_with_the_certificate_of_another_node(
    make: Make, at: Addresses, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node may not listen for a NID that its certificate is not for; one that did is not believed."""
    theirs = site.node(at.nid(3))
    with pytest.raises(LNetError, match="is for other NIDs") as refused:
        make(at.nid(2), tunables=REQUIRE, credentials=theirs)
    assert refused.value.errno == errno.EACCES
    monkeypatch.setattr("ulnet.lnd.tcp.shared.Shared.need_credentials", lambda shared, nid: believe(shared))
    words = f"has the certificate of '{at.nid(3)}', which is not for {at.nid(2)}"
    await refused_with(make, at, site.node(at.nid(1)), theirs, words)


def believe(shared: object) -> None:
    """The credentials, whomever they are for."""
    if shared.credentials is None:  # type: ignore[attr-defined]
        directory = shared.params.credentials  # type: ignore[attr-defined]
        shared.credentials = Credentials(directory, time.monotonic, print)  # type: ignore[attr-defined]


def tls_of(raw: RawPeer, credentials: str) -> ssl.SSLSocket:
    """A TLS client of a test, that blocks."""
    raw.sock.setblocking(True)
    context = Credentials(credentials, time.monotonic, print).caller
    raw.sock = context.wrap_socket(raw.sock)
    return raw.sock


async def test_who_claims_another_nid_than_its_certificate_says(
    make: Make, at: Addresses, site: Site
) -> None:
    a = make(at.nid(1), tunables=REQUIRE, credentials=site.node(at.nid(1)))
    raw = await dial(a, at.ip(2))
    foe = await blocking(tls_of, raw, site.node(at.nid(2)))
    hello = hello_bytes(Nid.parse(at.nid(3)), a.ni.nid)
    await blocking(foe.sendall, ConnRequest.to(a.ni.nid).pack() + hello)
    with suppress(ConnectionError):
        assert await blocking(foe.recv, 100) == b""
    words = f"it calls itself {at.nid(3)}, which its certificate is not for"
    assert any(words in line for line in a.reports)
    assert not a.lnd.open_connections


@pytest.mark.skipif(not ROOT, reason="the node needs source ports below 1024")
async def test_a_certificate_is_better_than_a_port_below_1024(make: Make, at: Addresses, site: Site) -> None:
    a = make(at.nid(1), accept="secure", tunables=OFFER, credentials=site.node(at.nid(1)))
    b = make(at.nid(2), tunables=OFFER, credentials=site.node(at.nid(2)), reserved_ports=False)
    b.put(at.nid(1), b"x")
    await until(a.core.complete(1))
    raw = await dial(a, at.ip(3))
    await raw.send(b"\0")
    assert (await raw.rest())[0] == b""
    assert any("nor is it secured" in line for line in a.reports)


async def test_a_certificate_lets_a_node_call_from_another_address(
    make: Make, at: Addresses, site: Site
) -> None:
    a = make(at.nid(1), tunables=REQUIRE, credentials=site.node(at.nid(1)))
    raw = await dial(a, at.ip(9))
    friend = await blocking(tls_of, raw, site.node(at.nid(2)))
    hello = hello_bytes(Nid.parse(at.nid(2)), a.ni.nid, ConnType.CONTROL)
    await blocking(friend.sendall, ConnRequest.to(a.ni.nid).pack() + hello)
    assert await blocking(friend.recv, 100)
    assert a.kinds(at.nid(2)) == [ConnType.CONTROL]


async def test_a_new_certificate_is_taken_while_messages_go(
    make: Make, at: Addresses, site: Site, tmp_path: Path
) -> None:
    theirs = Path(site.node(at.nid(2)))
    a = make(at.nid(1), tunables=REQUIRE, credentials=site.node(at.nid(1)))
    b = make(at.nid(2), tunables=REQUIRE, credentials=str(theirs))
    await exchange(a, b)
    before = certificate_seen(a, b)
    make_node(site.directory / "ca", theirs, [at.nid(2)], name="renewed", days=60)
    await exchange(a, b)
    credentials = b.state().shared.credentials
    assert credentials is not None
    credentials._looked -= 10  # the time until the next look has passed
    await hang_up(a, b)
    await exchange(a, b)
    after = certificate_seen(a, b)
    assert (before, after) == (at.nid(2), "renewed")
    b.state().sweep(0.0)
    assert b.ni.secured_until > a.ni.secured_until > time.time()
    (theirs / "node.key").write_text("broken")
    credentials._looked -= 10
    await hang_up(a, b)
    await exchange(a, b)
    assert any("those read before stay in use" in line for line in b.reports)


async def hang_up(a: Side, b: Side) -> None:
    """End all connections between the two."""
    await linked(a, b)
    former = [*a.peer(b.ni.nid).conns, *b.peer(a.ni.nid).conns]
    for conn in list(a.peer(b.ni.nid).conns):
        a.peer(b.ni.nid).close(
            [conn], Failure(errno.ECONNRESET, HealthStatus.LOCAL_ERROR, "the test hangs up")
        )
    await until(lambda: all(conn.sock is None for conn in former))  # there may be new ones by then


def certificate_seen(a: Side, b: Side) -> str:
    sock = a.peer(b.ni.nid).conns[-1].sock
    assert isinstance(sock, SecureSocket)
    return sock.certificate.name


async def test_nets_without_credentials_say_what_is_missing(
    make: Make, at: Addresses, tmp_path: Path
) -> None:
    with pytest.raises(LNetError, match="start lnetd with --credentials DIR"):
        make(at.nid(1), tunables=OFFER)
    with pytest.raises(LNetError, match=r"they take ca.pem, node.pem, node.key"):
        make(at.nid(2), tunables=OFFER, credentials=str(tmp_path))


async def test_security_that_cannot_be_is_refused_and_changes_nothing(make: Make, at: Addresses) -> None:
    a, b = make(at.nid(1)), make(at.nid(2))
    assert a.ni.lnd_tunables is not None
    a.ni.lnd_tunables.security = int(Security.REQUIRE)
    with pytest.raises(LNetError, match="start lnetd with --credentials DIR"):
        a.lnd.retune(a.ni, 50.0)
    assert a.state().security is Security.OFF
    await exchange(a, b)


async def test_from_now_on_connections_must_be_secured(make: Make, at: Addresses, site: Site) -> None:
    a = make(at.nid(1), tunables=OFFER, credentials=site.node(at.nid(1)))
    b = make(at.nid(2))
    await exchange(a, b)
    assert a.ni.lnd_tunables is not None
    a.ni.lnd_tunables.security = int(Security.REQUIRE)
    a.lnd.retune(a.ni, 50.0)
    assert not a.lnd.open_connections


# In the way of messages ---------------------------------------------------------------------------------


async def test_a_payload_that_waits_for_memory(make: Make, at: Addresses, site: Site) -> None:
    """Nothing is read meanwhile; what OpenSSL holds is read when it goes on."""
    a = make(at.nid(1), tunables=REQUIRE, credentials=site.node(at.nid(1)))
    b = make(at.nid(2), tunables=REQUIRE, credentials=site.node(at.nid(2)))
    b.core.hold = True
    msgs = [a.put(at.nid(2), bytes([n]) * 3000) for n in range(10)]
    for _ in msgs:
        await until(lambda: b.core.held)
        b.core.take(b.core.held.pop())
    await until(b.core.complete(10))
    assert [arrival.memory[0] for arrival in b.core.arrivals] == list(range(10))


async def test_a_reader_that_stops_and_goes_on(make: Make, at: Addresses, site: Site) -> None:
    """What did not leave is taken back where a record allows it, and nothing leaves twice."""
    a = make(at.nid(1), tunables=REQUIRE, credentials=site.node(at.nid(1)), tx_buffer_size=4096)
    b = make(at.nid(2), tunables=REQUIRE, credentials=site.node(at.nid(2)), rx_buffer_size=4096)
    await exchange(a, b)
    b.core.hold = True
    seen = len(b.core.arrivals)
    msgs = [a.put(at.nid(2), bytes([n]) * 30_000) for n in range(60)]
    await until(lambda: any(conn.tx.writing for conn in a.peer(at.nid(2)).conns))
    taken = [msg for conn in a.peer(at.nid(2)).conns for msg in conn.tx.take_queue()]
    assert taken
    for msg in taken:
        a.core.open.discard(msg)
    b.core.hold = False
    while b.core.held:
        b.core.take(b.core.held.pop())
        await turns(20)
    left = [msg for msg in msgs if msg not in taken]
    for msg in left:
        assert (await a.ended(msg)).status is HealthStatus.OK
    await until(b.core.complete(seen + len(left)))
    await turns(50)
    memories = [bytes(one.memory) for one in b.core.arrivals[seen:]]
    assert sorted(memories) == sorted(b"".join(bytes(view) for view in msg.payload) for msg in left)
    await exchange(a, b)


@pytest.mark.parametrize("size", [70_000, 300_001, 1 << 20])
@pytest.mark.parametrize("piece", [900, 16_385, 50_000])
async def test_long_payloads_are_taken_together_and_no_record_is_waited_for_in_vain(
    make: Make, at: Addresses, site: Site, size: int, piece: int
) -> None:
    a = make(at.nid(1), tunables=REQUIRE, credentials=site.node(at.nid(1)))
    friend = await blocking(tls_of, await dial(a, at.ip(2)), site.node(at.nid(2)))
    hello = hello_bytes(Nid.parse(at.nid(2)), a.ni.nid, ConnType.CONTROL)
    await blocking(friend.sendall, ConnRequest.to(a.ni.nid).pack() + hello)
    assert await blocking(friend.recv, 100)
    for number in range(5):  # the kernel may tell sooner: its buffer may be full of short segments
        before, together = await long_payload(a, at.nid(2), friend, size, piece, number)
        if together >= min(before, 150_000) - 16_384 - 2 * piece:
            return
    raise AssertionError(f"of {before} bytes {together} were taken together")


async def long_payload(
    a: Side, nid: str, friend: ssl.SSLSocket, size: int, piece: int, number: int
) -> tuple[int, int]:
    """Of a payload that comes in pieces: bytes that were to come at first, and how many waited for others."""
    rx = a.peer(nid).conns[0].rx
    payload = os.urandom(size)
    frame = lnet_frame(put_header(a.ni.nid, Nid.parse(nid), size), payload)
    friend.sendall(frame[:2_000])
    await until(lambda: rx.left)
    friend.sendall(frame[2_000:40_000])
    await until(lambda: rx.wake > 1)
    before = rx.left
    together = 0
    for start in range(40_000, len(frame), piece):
        await blocking(friend.sendall, frame[start : start + piece])
        await turns()
        if rx.left == before:
            together += piece
    await until(a.core.complete(number + 1))
    assert a.core.arrivals[number].memory == payload
    assert rx.wake == 1
    return before, together


def pair_of(site: Site) -> tuple[SecureSocket, SecureSocket]:
    """Two ends with the handshake through, that do not block."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = socket.create_connection(listening.getsockname())
        other, _ = listening.accept()
    for end in (one, other):
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    credentials = Credentials(site.node("10.0.0.1@tcp"), time.monotonic, print)
    a, b = credentials.secure(one), credentials.secure(other, listening=True)
    while any([shake(a), shake(b)]):
        pass
    return a, b


@settings(max_examples=examples(40))
@given(
    pieces=st.lists(st.integers(0, 40_000) | st.integers(0, 300), min_size=1, max_size=12),
    reads=st.lists(st.lists(st.integers(1, 30_000), min_size=1, max_size=4), min_size=1, max_size=8),
)
def test_bytes_arrive_as_they_were_in_whatever_pieces(
    site: Site, pieces: list[int], reads: list[list[int]]
) -> None:
    a, b = pair_of(site)
    data = bytes(at % 253 for at in range(sum(pieces)))
    waiting = []
    at = 0
    for size in pieces:
        waiting.append(memoryview(data)[at : at + size])
        at += size
    got = bytearray()
    turn = 0
    try:
        while len(got) < len(data):
            if waiting:
                try:
                    count = a.sendmsg(waiting) if len(waiting) > 1 else a.send(waiting[0])
                except BlockingIOError:
                    assert a.held
                    count = 0
                while waiting and count >= len(waiting[0]):
                    count -= len(waiting.pop(0))
                if count:
                    waiting[0] = waiting[0][count:]
            buffers = [bytearray(size) for size in reads[turn % len(reads)]]
            turn += 1
            try:
                count = b.recvmsg_into(buffers)[0]
            except BlockingIOError:
                continue
            got += b"".join(buffers)[:count]
        assert bytes(got) == data
    finally:
        a.close()
        b.close()


async def test_who_was_plain_and_is_secured_now_is_not_called_plain_any_more(
    make: Make, at: Addresses, site: Site
) -> None:
    """That it hung up on TLS a minute ago counts no longer: it has a certificate now, and called with it."""
    a = make(at.nid(1), tunables=OFFER, credentials=site.node(at.nid(1)))
    state = a.state()
    peer = Nid.parse(at.nid(2))
    assert state.fall_back(peer) and not state.secures(peer)
    b = make(at.nid(2), tunables=OFFER, credentials=site.node(at.nid(2)))
    assert (await b.ended(b.put(a.ni.nid, b"x"))).status is HealthStatus.OK
    assert all(secure_kinds(a, peer))
    assert state.secures(peer) and not state.fall_back(peer)

"""What a certificate is for, and that long ones cost no more than short ones."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lnd.conftest import Addresses
from lnd.kit import Side, dial, hello_bytes, lnet_frame, put_header, until
from lnd.test_tcp_secure import REQUIRE, Site, believe, blocking, tls_of
from support.certificates import make_odd
from support.examples import examples
from ulnet.core.status import LNetError
from ulnet.lnd.tcp import certificate
from ulnet.lnd.tcp.certificate import MOST_KNOWN, Certificate, KnownCertificates
from ulnet.lnd.tcp.secure import Credentials
from ulnet.nid import ANY_NID, Nid, NidList, NidRange
from ulnet.wire.acceptor import ConnRequest
from ulnet.wire.socklnd import ConnType

Make = Callable[..., Side]
NAMES = ["10.0.0.1@tcp", "10.0.[0-3].[1-9/2]@tcp[1-4]", "*@tcp7", "fd00::1@tcp", "10.0.0.1@o2ib"]
NIDS = [
    *("10.0.0.1@tcp", "10.0.0.2@tcp", "10.0.3.9@tcp4", "10.0.3.8@tcp4", "10.0.4.9@tcp4", "10.0.3.9@tcp5"),
    *("1.2.3.4@tcp7", "fd00::9@tcp7", "fd00::1@tcp", "fd00::2@tcp", "10.0.0.1@o2ib", "10.0.0.2@o2ib"),
]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("certificates"))


async def test_who_is_refused_hears_of_names_that_are_no_nids(make: Make, at: Addresses, site: Site) -> None:
    """Such as NIDs in capitals, which other tools write into certificates as they are."""
    directory = site.node(at.nid(2))
    make_odd(site.directory / "ca", Path(directory), [f"lnet:{at.ip(2)}@TCP", "lnet:none"])
    words = f"; names in it that are no NIDs: 'lnet:{at.ip(2)}@TCP', 'lnet:none'"
    with pytest.raises(LNetError, match=re.escape(words)):
        make(at.nid(2), tunables=REQUIRE, credentials=directory)
    a = make(at.nid(1), tunables=REQUIRE, credentials=site.node(at.nid(1)))
    raw = await dial(a, at.ip(2))
    foe = await blocking(tls_of, raw, directory)
    hello = hello_bytes(Nid.parse(at.nid(2)), a.ni.nid)
    await blocking(foe.sendall, ConnRequest.to(a.ni.nid).pack() + hello)
    await until(lambda: any(f"which its certificate is not for{words}" in line for line in a.reports))


@settings(max_examples=examples(60))
@given(names=st.lists(st.sampled_from(NAMES), max_size=4), nid=st.sampled_from(NIDS))
def test_a_certificate_is_for_what_its_names_match(names: list[str], nid: str) -> None:
    lists = tuple(map(NidList.parse, names))
    found = Nid.parse(nid)
    assert Certificate("", lists, 0.0).covers(found) == any(one.match(found) for one in lists)
    assert not Certificate("", lists, 0.0).covers(ANY_NID)
    assert Certificate("", lists, 0.0)(found) == Certificate("", lists, 0.0).covers(found)


@pytest.mark.pure
def test_a_nid_is_not_compared_with_each_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four connections with 1,024 names, on which each message has another source, stopped a node for 4 s."""
    found = Certificate("", tuple(NidList.parse(f"10.1.{n >> 8}.{n & 255}@tcp") for n in range(1024)), 0.0)
    monkeypatch.delattr(NidRange, "match")
    assert found.covers(Nid.parse("10.1.3.255@tcp"))
    assert not found.covers(Nid.parse("10.1.4.0@tcp"))


class Shown:
    """What OpenSSL shows of a certificate."""

    def __init__(self, number: int) -> None:
        self.number = number

    def getpeercert(self, binary: bool = False) -> Any:
        """See ssl.SSLObject."""
        names = (("URI", f"lnet:10.0.{self.number >> 8}.{self.number & 255}@tcp"),)
        fields = {"subjectAltName": names, "notAfter": "Jan  1 00:00:00 2030 GMT"}
        return self.number.to_bytes(2, "big") if binary else fields


def test_certificates_are_read_once_as_long_as_they_are_known() -> None:
    known = KnownCertificates()
    shown: list[Any] = [Shown(number) for number in range(MOST_KNOWN + 1)]
    first = known.of(shown[0])
    assert [str(one) for one in first.nids] == ["10.0.0.0@tcp"]
    assert known.of(shown[0]) is first
    for one in shown[1:MOST_KNOWN]:
        known.of(one)
    assert known.of(shown[0]) is first
    for one in shown[1:]:
        known.of(one)
    again = known.of(shown[0])
    assert again is not first, "of too many the one that was seen longest ago is forgotten"
    assert again == first, "the core takes it for no other one"
    assert hash(again) == hash(first)
    assert again != known.of(shown[1])


@pytest.mark.pure
async def test_who_comes_again_has_its_certificate_read_once(
    make: Make, at: Addresses, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, read = certificate.certificate_of, []

    def counting(fields: dict[str, Any]) -> Certificate:
        read.append(fields)
        return real(fields)

    a = make(at.nid(1), tunables=REQUIRE, credentials=site.node(at.nid(1)))
    believe(a.state().shared)
    theirs = Credentials(site.node(at.nid(2)), time.monotonic, print).caller
    monkeypatch.setattr(certificate, "certificate_of", counting)
    hello = hello_bytes(Nid.parse(at.nid(2)), a.ni.nid)
    for _ in range(3):
        raw = await dial(a, at.ip(2))
        raw.sock.setblocking(True)
        friend = await blocking(theirs.wrap_socket, raw.sock)
        await blocking(friend.sendall, ConnRequest.to(a.ni.nid).pack() + hello)
        assert await blocking(friend.recv, 100)
        friend.close()
    assert len(read) == 1


async def test_a_fast_sender_has_one_turn_at_a_time(make: Make, at: Addresses, site: Site) -> None:
    """On a loop that is not ulnet's its reader was queued once more in each turn, as long as it sent."""
    a = make(at.nid(1), tunables=REQUIRE, credentials=site.node(at.nid(1)))
    friend = await blocking(tls_of, await dial(a, at.ip(2)), site.node(at.nid(2)))
    hello = hello_bytes(Nid.parse(at.nid(2)), a.ni.nid, ConnType.CONTROL)
    await blocking(friend.sendall, ConnRequest.to(a.ni.nid).pack() + hello)
    assert await blocking(friend.recv, 100)
    rx = a.peer(at.nid(2)).conns[0].rx
    loop = asyncio.get_running_loop()
    soon, waiting, most, queued = loop.call_soon, 0, 0, 0

    def counted(call: Callable[..., Any], *args: Any, **more: Any) -> Any:
        nonlocal waiting, most, queued
        if getattr(call, "__self__", None) is not rx:
            return soon(call, *args, **more)

        def called() -> None:
            nonlocal waiting
            waiting -= 1
            call(*args)

        waiting, queued = waiting + 1, queued + 1
        most = max(most, waiting)
        return soon(called, **more)

    loop.call_soon = counted  # type: ignore[method-assign, assignment]
    try:
        count = 20_000
        frames = lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(2)), 0)) * count
        await blocking(_send_all, friend, frames)
        await until(a.core.complete(count))
    finally:
        loop.call_soon = soon  # type: ignore[method-assign]
    assert queued > 1
    assert most == 1


def _send_all(sock: ssl.SSLSocket, data: bytes) -> None:
    for start in range(0, len(data), 16_384):
        sock.sendall(data[start : start + 16_384])

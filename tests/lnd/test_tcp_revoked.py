"""Certificates that are revoked: nobody connects with them any more, and connections are made anew."""

from __future__ import annotations

import asyncio
import base64
import errno
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from lnd.conftest import Addresses
from lnd.kit import Side, until
from support.certificates import make_odd
from ulnet.cli.pki import make_authority, make_node, revoke
from ulnet.core.status import LNetError
from ulnet.lnd.tcp.certificate import Certificate, RevokedList
from ulnet.lnd.tcp.nistate import NiState
from ulnet.lnd.tcp.secure import Credentials, Security

Make = Callable[..., Side]
REQUIRE = {"security": int(Security.REQUIRE)}


class Site:
    """An authority, and credentials of nodes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = directory / "ca"
        make_authority(self.authority, "site")

    def node(self, nid: str) -> Path:
        out = self.directory / nid
        make_node(self.authority, out, [nid])
        return out

    def revoke(self, *nodes: Path, told: tuple[Path, ...]) -> None:
        """Revoke the certificates of nodes, and give the list to others."""
        revoke(self.authority, [node / "node.pem" for node in nodes])
        for place in told:
            (place / "revoked.pem").write_bytes((self.authority / "revoked.pem").read_bytes())


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def made(make: Make, nid: str, credentials: Path) -> Side:
    return make(nid, tunables=REQUIRE, credentials=str(credentials), min_reconnectms=1)


def of(side: Side) -> Credentials:
    found = side.state().shared.credentials
    assert found is not None
    return found


@pytest.mark.parametrize("caller", ["revoked", "other"])
async def test_nobody_connects_with_a_revoked_certificate(
    make: Make, at: Addresses, site: Site, caller: str
) -> None:
    good, bad = site.node(at.nid(1)), site.node(at.nid(2))
    site.revoke(bad, told=(good,))
    a, b = made(make, at.nid(1), good), made(make, at.nid(2), bad)
    first, second = (a, b) if caller == "other" else (b, a)
    outcome = await first.ended(first.put(str(second.ni.nid), b"secret"))
    assert outcome.errno
    assert not a.core.arrivals
    assert not b.core.arrivals
    if caller == "other":
        assert "its certificate is not good: certificate revoked" in outcome.reason
    else:
        await until(lambda: any("certificate revoked" in line for line in a.reports))


async def test_who_is_connected_is_no_more_and_others_are(make: Make, at: Addresses, site: Site) -> None:
    good, bad, third = (site.node(at.nid(number)) for number in (1, 2, 3))
    a, b, c = (made(make, at.nid(number + 1), place) for number, place in enumerate((good, bad, third)))
    for side in (b, c):
        assert not (await side.ended(side.put(at.nid(1), b"before"))).errno
    former = list(a.peer(at.nid(2)).conns)
    assert former
    site.revoke(bad, told=(good,))
    await until(lambda: all(conn.sock is None for conn in former))
    assert (await b.ended(b.put(at.nid(1), b"again"))).errno
    assert not (await c.ended(c.put(at.nid(1), b"again"))).errno


async def test_a_new_certificate_of_a_node_whose_former_one_is_revoked(
    make: Make, at: Addresses, site: Site
) -> None:
    good, bad = site.node(at.nid(1)), site.node(at.nid(2))
    site.revoke(bad, told=(good,))
    site.node(at.nid(2))
    a, b = made(make, at.nid(1), good), made(make, at.nid(2), bad)
    assert not (await b.ended(b.put(at.nid(1), b"new"))).errno
    await until(lambda: bool(a.core.arrivals))


async def test_only_connections_with_who_is_revoked_end(make: Make, at: Addresses, site: Site) -> None:
    good, bad, third = (site.node(at.nid(number)) for number in (1, 2, 3))
    a, b, c = (made(make, at.nid(number + 1), place) for number, place in enumerate((good, bad, third)))
    for side in (b, c):
        assert not (await side.ended(side.put(at.nid(1), b"before"))).errno
    ends, stay = (list(a.peer(at.nid(number)).conns) for number in (2, 3))
    assert ends
    assert stay
    make_node(site.authority, good, [at.nid(1)], name="renewed")
    site.revoke(bad, told=(good,))
    await until(lambda: all(conn.sock is None for conn in ends))
    assert any("was read anew" in line for line in a.reports)
    assert all(conn.sock is not None for conn in stay)


@pytest.mark.pure
@pytest.mark.parametrize("method", ["admit", "add_conn"])
async def test_a_handshake_that_began_before_is_not_finished(
    make: Make, at: Addresses, site: Site, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """TLS was through when the list came, and the HELLO was still to come: it lived on for good."""
    good, bad = site.node(at.nid(1)), site.node(at.nid(2))
    a, b = made(make, at.nid(1), good), made(make, at.nid(2), bad)
    credentials = of(a)
    begun = getattr(NiState, method)

    def late(state: NiState, *given: Any, **more: Any) -> Any:
        if state is a.state():
            site.revoke(bad, told=(good,))
            credentials.look()
            credentials.revised = False  # the sweep has been
        return begun(state, *given, **more)

    monkeypatch.setattr(NiState, method, late)
    first, second = (b, a) if method == "admit" else (a, b)
    assert (await first.ended(first.put(str(second.ni.nid), b"secret"))).errno
    assert not a.core.arrivals
    assert not b.core.arrivals
    assert any("its certificate is revoked" in line for line in a.reports)


@pytest.mark.parametrize("why", ["expired", "of others"])
async def test_a_list_is_taken_where_the_certificate_beside_it_is_of_no_use(
    make: Make, at: Addresses, site: Site, why: str
) -> None:
    good, bad = site.node(at.nid(1)), site.node(at.nid(2))
    a, b = made(make, at.nid(1), good), made(make, at.nid(2), bad)
    assert not (await b.ended(b.put(at.nid(1), b"before"))).errno
    former = list(a.peer(at.nid(2)).conns)
    make_node(site.authority, good, [at.nid(1 if why == "expired" else 9)], days=0 if why == "expired" else 9)
    await asyncio.sleep(0.01)
    site.revoke(bad, told=(good,))
    await until(lambda: all(conn.sock is None for conn in former))
    assert (await b.ended(b.put(at.nid(1), b"again"))).errno


def test_a_list_that_is_none_is_refused(site: Site) -> None:
    """The former one stays in use where there is one."""
    place = site.node("10.0.0.1@tcp")
    (place / "revoked.pem").write_bytes((place / "ca.pem").read_bytes())
    reports: list[str] = []
    with pytest.raises(LNetError, match=r"revoked\.pem has no list of revoked certificates") as failed:
        Credentials(str(place), lambda: 0.0, reports.append)
    assert failed.value.errno == errno.EINVAL
    site.revoke(told=(place,))
    used = Credentials(str(place), lambda: 0.0, reports.append)
    before = used.caller
    for text in ("half of", ""):
        (place / "revoked.pem").write_text(text)
        used.look()
        assert used.caller is before
        assert not used.revised
        assert "those read before stay in use" in reports[-1]
    (place / "revoked.pem").unlink()


def test_a_list_of_another_authority_is_refused(site: Site, tmp_path: Path) -> None:
    """Nobody would be let in with it."""
    place, other = site.node("10.0.0.1@tcp"), tmp_path / "other"
    make_authority(other, "another")
    revoke(other, [])
    (place / "revoked.pem").write_bytes((other / "revoked.pem").read_bytes())
    with pytest.raises(LNetError, match="is of no use for our certificate: unable to get certificate CRL"):
        Credentials(str(place), lambda: 0.0, lambda line: None)


def test_serial_numbers_of_every_length_are_found(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    numbers = [1, 127, 128, 255, 256, 1 << 63, (1 << 159) - 1, 1 << 158]
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(x509.Name([]))
        .last_update(now)
        .next_update(now + timedelta(days=1))
    )
    for number in numbers[::2]:
        entry = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(now).build()
        builder = builder.add_revoked_certificate(entry)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    found = RevokedList(pem)
    assert [number for number in numbers if found.has(Certificate("", (), 0.0, number))] == numbers[::2]


@pytest.mark.parametrize("number", [0, -1, -5, -128, -129, -(1 << 63)])
def test_serial_numbers_below_zero_are_found(number: int) -> None:
    """Authorities other than `ulnet pki` may take them; all other connections were not looked at then."""
    size = (~number if number < 0 else number).bit_length() // 8 + 1
    entry = bytes([2, size]) + number.to_bytes(size, "big", signed=True) + b"\x17"
    pem = b"-----BEGIN X509 CRL-----\n%b\n-----END X509 CRL-----" % base64.b64encode(entry)
    found = RevokedList(pem)
    assert found.has(Certificate("", (), 0.0, number))
    assert not found.has(Certificate("", (), 0.0, number - 1))
    assert not found.has(Certificate("", (), 0.0, 5))


async def test_a_node_whose_serial_number_is_below_zero_does_not_hide_others(
    make: Make, at: Addresses, site: Site
) -> None:
    good, odd, bad = (site.node(at.nid(number)) for number in (1, 2, 3))
    make_odd(site.authority, odd, [f"lnet:{at.nid(2)}"], -5)
    a, b, c = (made(make, at.nid(number + 1), place) for number, place in enumerate((good, odd, bad)))
    for side in (b, c):
        assert not (await side.ended(side.put(at.nid(1), b"before"))).errno
    ends, stay = (list(a.peer(at.nid(number)).conns) for number in (3, 2))
    assert ends
    site.revoke(bad, told=(good,))
    await until(lambda: all(conn.sock is None for conn in ends))
    assert all(conn.sock is not None for conn in stay)
    assert not (await b.ended(b.put(at.nid(1), b"again"))).errno


def test_a_list_that_is_gone_is_told(site: Site) -> None:
    place = site.node("10.0.0.1@tcp")
    site.revoke(told=(place,))
    reports: list[str] = []
    used = Credentials(str(place), lambda: 0.0, reports.append)
    (place / "revoked.pem").unlink()
    used.look()
    assert "no list of revoked certificates" in reports[-1]

"""Certificates that are revoked: nobody connects with them any more, and connections are made anew."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from lnd.conftest import Addresses
from lnd.kit import Side, until
from ulnet.cli.pki import make_authority, make_node, revoke
from ulnet.core.status import LNetError
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


async def test_who_is_connected_is_no_more_and_all_others_are_again(
    make: Make, at: Addresses, site: Site
) -> None:
    good, bad, third = (site.node(at.nid(number)) for number in (1, 2, 3))
    a, b, c = (made(make, at.nid(number + 1), place) for number, place in enumerate((good, bad, third)))
    for side in (b, c):
        assert not (await side.ended(side.put(at.nid(1), b"before"))).errno
    former = [conn for nid in (2, 3) for conn in a.peer(at.nid(nid)).conns]
    assert former
    site.revoke(bad, told=(good,))
    await until(lambda: all(conn.sock is None for conn in former))
    assert (await b.ended(b.put(at.nid(1), b"again"))).errno
    assert not (await c.ended(c.put(at.nid(1), b"again"))).errno
    assert any("was read anew" in line for line in a.reports)


async def test_a_new_certificate_of_a_node_whose_former_one_is_revoked(
    make: Make, at: Addresses, site: Site
) -> None:
    good, bad = site.node(at.nid(1)), site.node(at.nid(2))
    site.revoke(bad, told=(good,))
    site.node(at.nid(2))
    a, b = made(make, at.nid(1), good), made(make, at.nid(2), bad)
    assert not (await b.ended(b.put(at.nid(1), b"new"))).errno
    await until(lambda: bool(a.core.arrivals))


async def test_a_renewed_certificate_ends_no_connection(make: Make, at: Addresses, site: Site) -> None:
    """A list that stays the same does not, either."""
    good, other = site.node(at.nid(1)), site.node(at.nid(2))
    site.revoke(told=(good,))
    a, b = made(make, at.nid(1), good), made(make, at.nid(2), other)
    assert not (await b.ended(b.put(at.nid(1), b"before"))).errno
    former = list(a.peer(at.nid(2)).conns)
    make_node(site.authority, good, [at.nid(1)], name="renewed")
    (good / "revoked.pem").write_bytes((good / "revoked.pem").read_bytes())
    await until(lambda: any("was read anew" in line for line in a.reports))
    assert former
    assert all(conn.sock is not None for conn in former)


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
    (place / "revoked.pem").write_text("half of")
    used.look()
    assert used.caller is before
    assert not used.revised
    assert "those read before stay in use" in reports[-1]


def test_a_list_that_is_gone_is_told(site: Site) -> None:
    place = site.node("10.0.0.1@tcp")
    site.revoke(told=(place,))
    reports: list[str] = []
    used = Credentials(str(place), lambda: 0.0, reports.append)
    (place / "revoked.pem").unlink()
    used.look()
    assert "no list of revoked certificates" in reports[-1]

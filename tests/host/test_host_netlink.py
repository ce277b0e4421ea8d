"""Links: choosing among hand-made ones, and what netlink tells of real ones."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from pathlib import Path
from socket import AF_INET6

import pytest

from support.netns import Cluster
from ulnet.host import Address, HostError, Link, first_address, link_named, link_with_address, links
from ulnet.host.values import SCOPE_HOST, SCOPE_LINK

LO = Link(
    "lo",
    1,
    addresses=(Address("127.0.0.1", 8, scope=SCOPE_HOST), Address("::1", 128, AF_INET6, SCOPE_HOST)),
    loopback=True,
)
ETH0 = Link("eth0", 2, addresses=(Address("fd00::1", 64, AF_INET6), Address("10.0.0.1", 24)))
ETH1 = Link("eth1", 3, addresses=(Address("10.1.0.1", 24), Address("10.1.0.2", 24)))
BARE = Link("eth2", 4, addresses=(Address("fe80::1", 64, AF_INET6, SCOPE_LINK),))
ALL = (LO, ETH0, ETH1, BARE)


def test_a_link_is_found_by_name() -> None:
    assert link_named("eth1", ALL) is ETH1


def test_an_unknown_name_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(HostError, match=r"'eth9'.*lo, eth0, eth1, eth2") as refused:
        link_named("eth9", ALL)
    assert refused.value.errno == errno.ENODEV


@pytest.mark.parametrize(
    ("ip", "link"),
    [("10.1.0.2", ETH1), ("fd00::1", ETH0), ("fd00:0:0::1", ETH0), ("127.0.0.1", LO), ("127.9.8.7", LO)],
)
def test_a_link_is_found_by_address(ip: str, link: Link) -> None:
    assert link_with_address(ip, ALL) is link


@pytest.mark.parametrize("ip", ["10.0.0.2", "::2", "fd00::2"])
def test_a_neighbours_address_is_not_ours(ip: str) -> None:
    with pytest.raises(HostError, match="not an address of this host") as refused:
        link_with_address(ip, ALL)
    assert refused.value.errno == errno.EADDRNOTAVAIL


def test_ipv4_names_a_link_unless_large_nids_are_wanted() -> None:
    assert first_address(ETH0).ip == "10.0.0.1"
    assert first_address(ETH0, prefer_large=True).ip == "fd00::1"
    assert first_address(ETH1, prefer_large=True).ip == "10.1.0.1"


def test_addresses_that_no_nid_can_use_do_not_count() -> None:
    with pytest.raises(HostError, match="eth2 has no usable IP address"):
        first_address(BARE)
    half = Link("eth3", 5, addresses=(Address("fd00::5", 64, AF_INET6, tentative=True),))
    with pytest.raises(HostError, match="eth3 has no usable IP address"):
        first_address(half)


def test_netlink_lists_the_loopback_link_with_its_address() -> None:
    lo = link_named("lo")
    assert lo.loopback and lo.up and lo.index == 1 and lo.mtu > 1500
    assert Address("127.0.0.1", 8, scope=SCOPE_HOST) in lo.addresses


def test_links_can_be_listed_while_an_event_loop_runs() -> None:
    async def inside() -> list[Link]:
        return links()

    assert asyncio.run(inside()) == links()


async def test_an_error_inside_comes_out_of_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr("ulnet.host.netlink._query", refuse)
    with pytest.raises(HostError, match="netlink cannot be used here") as refused:
        links()
    assert refused.value.errno == errno.EMFILE


_PRINT = "import sys; from ulnet.host import *; print(eval(sys.argv[1]))"


def test_a_hosts_rails_are_listed_with_their_state(two_hosts: Cluster) -> None:
    host = two_hosts.hosts[0]

    def tell(expression: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
        words = host.words(sys.executable, "-c", _PRINT, expression)
        return subprocess.run(
            words, env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    shown = "(lambda link: (first_address(link).ip, first_address(link, True).ip, link.up, link.carrier))"
    assert tell(f"{shown}(link_named('rail1'))") == str((host.address(1), host.address6(1), True, True))
    assert tell(f"link_with_address('{host.address6(0)}').name") == "rail0"
    assert tell(f"source_address_for('{two_hosts.hosts[1].address(1)}')") == host.address(1)
    host.run("ip", "addr", "add", "10.9.0.1/24", "dev", "rail1", "label", "rail1:1")
    assert tell("(lambda link: (link.name, link.addresses[0].ip))(link_named('rail1:1'))") == str(
        ("rail1", "10.9.0.1")
    )
    host.set_link(1, up=False)
    assert tell("link_named('rail1').up, link_named('rail1').carrier") == "(False, False)"

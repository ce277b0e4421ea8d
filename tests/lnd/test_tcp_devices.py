"""One NI over several devices: which addresses meet, and what goes over which connection."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import Counter
from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.ports import free_port
from support.steady import run
from ulnet import Node
from ulnet.core.md import MANAGE_REMOTE, OP_GET, OP_PUT, TRUNCATE
from ulnet.core.ni import NI, Place
from ulnet.core.states import NiState
from ulnet.core.status import HealthStatus, LNetError
from ulnet.lnd.base import DeviceNews
from ulnet.lnd.tcp import TcpLnd, TcpParams, nistate
from ulnet.lnd.tcp.devices import MOST_ADDRESSES, believable, matched
from ulnet.lnd.tcp.errors import Failure
from ulnet.nid import Net, Nid
from ulnet.wire.socklnd import ConnType

TCP = Net.parse("tcp")
PORTAL = 30
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may call from ports below 1024")
addresses = st.integers(1 << 24, (224 << 24) - 1).map(lambda number: Nid.of(TCP, number))


def nids(*ips: str) -> list[Nid]:
    return [Nid.of(TCP, ip) for ip in ips]


def numbers(*ips: str) -> list[int]:
    return [int(IPv4Address(ip)) for ip in ips]


# Which addresses meet ----------------------------------------------------------------------------------


def test_addresses_of_one_subnet_meet() -> None:
    assert matched(nids("10.0.0.1", "10.1.0.1"), nids("10.1.0.2", "10.0.0.2")) == [(0, 1), (1, 0)]


def test_in_one_subnet_each_address_has_a_partner_of_its_own() -> None:
    pairs = matched(nids("10.0.0.1", "10.0.0.2"), nids("10.0.0.3", "10.0.0.4"))
    assert sorted(i for i, _ in pairs) == sorted(j for _, j in pairs) == [0, 1]


def test_who_has_one_address_meets_all() -> None:
    assert matched(nids("10.0.0.1", "10.1.0.1"), nids("10.0.0.2")) == [(0, 0), (1, 0)]
    assert matched(nids("10.0.0.1"), nids("10.0.0.2", "10.1.0.2")) == [(0, 0), (0, 1)]


@given(st.lists(addresses, min_size=1, unique=True), st.lists(addresses, min_size=1, unique=True))
def test_every_address_meets_one_and_there_are_no_more_pairs_than_that_needs(
    own: list[Nid], others: list[Nid]
) -> None:
    pairs = matched(own, others)
    assert {i for i, _ in pairs} == set(range(len(own)))
    assert {j for _, j in pairs} == set(range(len(others)))
    assert len(pairs) == max(len(own), len(others))


# What a peer says of itself ----------------------------------------------------------------------------


def test_a_peer_has_the_address_of_its_nid_first() -> None:
    own, peer, second = nids("10.0.0.1", "10.0.0.2", "10.1.0.2")
    assert believable(TCP, own, peer, numbers("10.1.0.2", "10.0.0.2")) == (peer, second)
    assert believable(TCP, own, peer, ()) == (peer,)


@pytest.mark.parametrize("ip", ["127.0.0.1", "224.0.0.1", "255.255.255.255", "0.0.0.1"])
def test_what_is_no_address_of_another_host_is_not_called(ip: str) -> None:
    own, peer = nids("10.0.0.1", "10.0.0.2")
    assert believable(TCP, own, peer, numbers(ip)) == (peer,)


@given(st.lists(st.integers(0, 2**32 - 1), max_size=64))
def test_whatever_a_hello_says_there_are_few_addresses_to_call(ips: list[int]) -> None:
    own, peer = nids("10.0.0.1", "10.0.0.2")
    found = believable(TCP, own, peer, ips)
    assert found[0] == peer
    assert len(found) <= MOST_ADDRESSES


# The devices -------------------------------------------------------------------------------------------


def test_an_ni_is_degraded_while_one_of_its_devices_fails_or_is_slow() -> None:
    async def body() -> None:
        params = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
        async with Node(tcp=params) as node:
            ni = bonded(node, 1)
            state = ni.lnd_data
            assert isinstance(state, nistate.NiState)
            first, second = state.devices
            told: list[tuple[str, NiState]] = []
            for device, news in (
                (first, DeviceNews("eth0", slow="it runs at 10 Mb/s")),
                (second, DeviceNews("eth1")),  # says nothing of eth0
                (first, DeviceNews("eth0")),
                (second, DeviceNews("eth1", failure="it has no carrier")),
                (first, DeviceNews("eth0", failure="it is switched off")),
                (second, DeviceNews("eth1")),
                (first, DeviceNews("eth0")),
            ):
                state.device_changed(device, news)
                told.append((news.name, ni.state))
            assert told == [
                ("eth0", NiState.DEGRADED),
                ("eth1", NiState.DEGRADED),
                ("eth0", NiState.ACTIVE),
                ("eth1", NiState.DEGRADED),
                ("eth0", NiState.FAILED),
                ("eth1", NiState.DEGRADED),
                ("eth0", NiState.ACTIVE),
            ]

    run(body())


# On loopback -------------------------------------------------------------------------------------------


class Pair:
    """A node with two addresses under one NID calls another; `peer_rails` tells how many that one has."""

    def __init__(self, peer_rails: int = 2, privileged: bool = False) -> None:
        self.port = free_port()
        self.params = TcpParams(accept="all", accept_port=self.port, reserved_ports=privileged)
        self.nodes = [Node(tcp=self.params), Node(tcp=self.params)]
        self.rails = (2, peer_rails)

    async def __aenter__(self) -> Pair:
        for number, (node, rails) in enumerate(zip(self.nodes, self.rails, strict=True), 1):
            await node.start()
            bonded(node, number, rails)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for node in self.nodes:
            await node.close()

    def connections(self, of: int = 0) -> Counter[tuple[str, str, ConnType]]:
        node = self.nodes[of]
        (state,) = [ni.lnd_data for ni in node.core.nis.values() if isinstance(ni.lnd_data, nistate.NiState)]
        return Counter(
            (conn.local_ip, conn.remote_ip, conn.ctype)
            for peer in state.peers.values()
            for conn in peer.conns
        )

    def state(self, of: int = 0) -> nistate.NiState:
        (state,) = [
            ni.lnd_data for ni in self.nodes[of].core.nis.values() if isinstance(ni.lnd_data, nistate.NiState)
        ]
        return state

    def is_avoided(self) -> bool:
        """Whether the core of the first node thinks that nothing gets to the second."""
        there = self.nodes[0].core.peers.find_ni(Nid.parse("127.0.0.2@tcp"))
        assert there is not None
        return there.path_loads[self.state().ni].stalled

    async def send(self, count: int = 20) -> None:
        inbox = self.nodes[1].attach(PORTAL, 1, bytearray(1 << 16))
        try:
            for number in range(count):
                await self.nodes[0].put("127.0.0.2@tcp", PORTAL, 1, bytes(2000), hdr_data=number)
        finally:
            inbox.close()


def bonded(node: Node, number: int, rails: int = 2) -> NI:
    also = [Place(Nid.parse(f"127.0.{rail}.{number}@tcp"), "") for rail in range(1, rails)]
    return node.core.add_ni(TCP, Nid.parse(f"127.0.0.{number}@tcp"), also=also)


async def settled(pair: Pair) -> Counter[tuple[str, str, ConnType]]:
    """The connections, once no more of them are made."""
    seen = pair.connections()
    while True:
        await asyncio.sleep(0.1)
        if seen == (seen := pair.connections()):
            return seen


@pytest.mark.requirement("HLD-bonding-tcp")
def test_two_such_nodes_are_connected_over_both_addresses() -> None:
    async def body() -> None:
        async with Pair() as pair:
            await pair.send()
            found = await settled(pair)
            wanted = {
                (f"127.0.{rail}.1", f"127.0.{rail}.2", ctype)
                for rail in range(2)
                for ctype in (ConnType.BULK_IN, ConnType.BULK_OUT)
            }
            assert wanted | {("127.0.0.1", "127.0.0.2", ConnType.CONTROL)} == set(found)
            assert set(found.values()) == {1}
            assert list(pair.state(of=1).peers) == [(Nid.parse("127.0.0.1@tcp"), 12345)]

    run(body())


@NEEDS_ROOT
@pytest.mark.parametrize("privileged", [True, False])
def test_an_ordinary_peer_is_called_from_all_addresses_if_it_believes_them(
    privileged: bool,
) -> None:
    async def body() -> None:
        async with Pair(peer_rails=1, privileged=privileged) as pair:
            await pair.send()
            found = await settled(pair)
            wanted = {"127.0.0.1", "127.0.1.1"} if privileged else {"127.0.0.1"}
            assert {own for own, _, _ in found} == wanted
            assert {other for _, other, _ in found} == {"127.0.0.2"}

    run(body())


def test_addresses_of_ipv6_are_refused_for_a_hello_cannot_tell_of_them() -> None:
    async def body() -> None:
        async with Node(tcp=TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)) as node:
            nid = Nid.parse("::1@tcp")
            with pytest.raises(LNetError, match="needs IPv4 addresses"):
                node.core.add_ni(TCP, nid, also=[Place(Nid.parse("127.0.0.1@tcp"), "")])
            assert nid not in node.core.nis

    run(body())


def test_an_address_that_is_not_ours_leaves_nothing_behind() -> None:
    async def body() -> None:
        params = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
        async with Node(tcp=params) as node:
            nid = Nid.parse("127.0.0.1@tcp")
            with pytest.raises(LNetError, match="not an address of this host"):
                node.core.add_ni(TCP, nid, also=[Place(Nid.parse("192.0.2.1@tcp"), "")])
            node.core.add_ni(TCP, nid, also=[])  # its port is free

    run(body())


@pytest.mark.requirement("HLD-bonding-tcp")
def test_such_a_net_takes_no_other_ni() -> None:
    async def body() -> None:
        params = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
        async with Node(tcp=params) as node:
            bonded(node, 1)
            with pytest.raises(LNetError, match=r"one NI, 127\.0\.0\.1@tcp, and takes no other") as refused:
                node.add_ni("127.0.0.9@tcp")
            assert refused.value.errno == 1
            node.add_ni("127.0.0.9@tcp1")

    run(body())


# Connections that come and go ------------------------------------------------------------------------


NO_CARRIER = "it has no carrier"


@pytest.mark.requirement("HLD-bonding-tcp")
def test_a_path_is_not_avoided_after_all_its_devices_were_gone_and_are_back() -> None:
    async def body() -> None:
        async with Pair() as pair:
            await pair.send()
            await settled(pair)
            state = pair.state()
            for device in state.devices:
                state.device_changed(device, DeviceNews("eth", failure=NO_CARRIER, gone=True))
            assert not pair.connections()
            for device in state.devices:
                state.device_changed(device, DeviceNews("eth"))
            await pair.send()
            assert not pair.is_avoided()

    run(body())


@pytest.mark.requirement("HLD-bonding-tcp")
def test_a_path_is_not_avoided_when_it_is_connected_over_another_device() -> None:
    async def body() -> None:
        async with Pair() as pair:
            state = pair.state()
            first, second = state.devices
            state.device_changed(second, DeviceNews("eth1", failure=NO_CARRIER))
            await pair.send()
            await settled(pair)
            state.device_changed(first, DeviceNews("eth0", failure=NO_CARRIER))
            assert state.ni.fatal
            state.device_changed(second, DeviceNews("eth1"))
            assert pair.is_avoided()
            await settled(pair)
            await pair.send()
            (peer,) = state.peers.values()
            assert {conn.local_ip for conn in peer.usable()} == {second.ip}
            assert not pair.is_avoided()

    run(body())


@pytest.mark.requirement("HLD-bonding-tcp")
def test_a_pair_of_addresses_is_left_as_a_whole_and_the_path_avoided_when_all_are() -> None:
    async def body() -> None:
        async with Pair() as pair:
            await pair.send()
            await settled(pair)
            (peer,) = pair.state().peers.values()
            first, second = (
                [conn for conn in peer.conns if conn.local_ip == device.ip] for device in pair.state().devices
            )
            peer.gets_stuck(first[0])
            assert set(peer.usable()) == set(second)
            assert not pair.is_avoided()
            before = [conn.tx.sent_total for conn in first]
            await pair.send()
            assert [conn.tx.sent_total for conn in first] == before
            peer.gets_stuck(second[0])
            assert pair.is_avoided()
            await pair.send()  # there is no other path: what is stuck is the only chance
            peer.moves_on(first[0])
            assert set(peer.usable()) == set(first)
            assert not pair.is_avoided()
            await pair.send()
            peer.moves_on(second[0])
            assert peer.usable() == peer.conns

    run(body())


@pytest.mark.requirement("HLD-bonding-tcp", "snd-045")
def test_what_left_over_connections_that_break_goes_over_the_others() -> None:
    async def body() -> None:
        async with Pair() as pair:
            await pair.send()
            await settled(pair)
            one, other = pair.nodes
            other.core.memory.set_lazy(PORTAL)
            puts = [
                asyncio.create_task(one.put("127.0.0.2@tcp", PORTAL, 7, bytes([number]) * 50_000))
                for number in range(4)
            ]
            (peer,) = pair.state(of=1).peers.values()

            def waiting() -> list[str]:
                return [conn.local_ip for conn in peer.conns if conn.rx.paused]

            while len(set(waiting())) < 2:  # over both
                await asyncio.sleep(0.01)
            doomed = [conn for conn in peer.conns if conn.local_ip == "127.0.1.2"]
            peer.close(doomed, Failure(errno.ETIMEDOUT, HealthStatus.NETWORK_TIMEOUT, "by the test"))
            while not one.core.stats.resend_count:
                await asyncio.sleep(0.01)
            inbox = other.attach(PORTAL, 7, bytearray(1 << 20))
            await asyncio.gather(*puts)
            taken = [bytes((await inbox.next_event()).data[:1]) for _ in puts]
            assert sorted(taken) == [bytes([number]) for number in range(4)]
            inbox.close()

    run(body())


@pytest.mark.requirement("HLD-bonding-tcp")
@pytest.mark.parametrize("failed", [0, 1])
@pytest.mark.parametrize("size", [64, 50_000])
@pytest.mark.parametrize("answering", [2, pytest.param(1, marks=NEEDS_ROOT)])
def test_answers_go_back_where_their_requests_came_from(failed: int, size: int, answering: int) -> None:
    """The other node does not know that a device here carries nothing.

    What is asked for by the one connection of small messages still is answered by all, if that is large.
    """
    gets = 0 if failed and size > 64 else 20

    async def body() -> None:
        async with Pair(answering, privileged=answering == 1) as pair:
            one, other = pair.nodes
            options = OP_PUT | OP_GET | TRUNCATE | MANAGE_REMOTE
            other.attach(PORTAL, 7, bytearray(size), options=options, handler=lambda event: None)
            await pair.send()
            await settled(pair)
            (peer,) = pair.state(of=1).peers.values()
            cut = [conn for conn in peer.conns if conn.remote_ip == f"127.0.{failed}.1"]
            assert cut
            before = [conn.tx.sent_total for conn in cut]
            state = pair.state()
            device = state.devices[failed]
            state.device_changed(device, DeviceNews("eth", failure=NO_CARRIER))
            for nth in range(10):
                await one.put("127.0.0.2@tcp", PORTAL, 7, bytes(size))
                if nth < gets:
                    await one.get("127.0.0.2@tcp", PORTAL, 7, bytearray(size))
            await asyncio.gather(
                *(one.put("127.0.0.2@tcp", PORTAL, 7, bytes(size)) for _ in range(20)),
                *(one.get("127.0.0.2@tcp", PORTAL, 7, bytearray(size)) for _ in range(gets)),
            )
            assert [conn.tx.sent_total for conn in cut] == before

    run(body())


@pytest.mark.requirement("HLD-bonding-tcp")
def test_answers_go_back_there_also_where_many_connections_are_read_at_once() -> None:
    async def body() -> None:
        async with Pair() as pair, Node(tcp=pair.params) as third:
            third.core.add_ni(TCP, Nid.parse("127.0.0.3@tcp"))
            one, other = pair.nodes
            other.attach(PORTAL, 7, bytearray(64), options=OP_PUT | TRUNCATE | MANAGE_REMOTE)
            await third.put("127.0.0.2@tcp", PORTAL, 7, bytes(64))
            await pair.send()
            await settled(pair)
            peer = pair.state(of=1).peers[Nid.parse("127.0.0.1@tcp"), 12345]
            cut = [conn for conn in peer.conns if conn.local_ip == "127.0.0.2"]
            await one.put("127.0.0.2@tcp", PORTAL, 7, bytes(64))  # over the device that fails
            before = [conn.tx.sent_total for conn in cut]
            pair.state().device_changed(pair.state().devices[0], DeviceNews("eth", failure=NO_CARRIER))
            for _ in range(3):
                await asyncio.gather(
                    *(node.put("127.0.0.2@tcp", PORTAL, 7, bytes(64)) for node in (one, third))
                )
            assert [conn.tx.sent_total for conn in cut] == before

    run(body())


@pytest.mark.requirement("HLD-bonding-tcp")
def test_a_pair_of_addresses_that_cannot_be_connected_holds_up_no_other() -> None:
    async def body() -> None:
        async with Pair() as pair:
            tcp = pair.nodes[0].driver(TcpLnd)
            assert tcp is not None
            tcp.params.min_reconnectms = tcp.params.refused_reconnectms = 60_000
            other = pair.state(of=1)
            _, second = other.devices
            other.device_changed(second, DeviceNews("eth1", failure=NO_CARRIER, gone=True))
            await pair.send()
            assert {to for _, to, _ in await settled(pair)} == {"127.0.0.2"}
            (peer,) = other.peers.values()
            peer.close(
                list(peer.conns), Failure(errno.ETIMEDOUT, HealthStatus.NETWORK_TIMEOUT, "by the test")
            )
            while pair.connections():
                await asyncio.sleep(0.01)
            await pair.send()

    run(body())

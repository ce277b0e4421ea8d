"""Hosts with and without Multi-Rail in namespaces: the static use cases 1, 2, 5 and 6 of the documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from support import generation_node
from support.netns import Cluster, Host, stop
from support.program import Program

MANY = 12

NEAR, FAR = ("tcp1", "tcp2"), ("tcp3", "tcp4")


@pytest.fixture
def hosts(make_cluster: Callable[..., Cluster]) -> list[Host]:
    return list(make_cluster(hosts=2, rails=2))


@pytest.fixture
def start() -> Iterator[Callable[..., Program]]:
    with ExitStack() as stack:

        def start(host: Host, generation: str, *nids: str) -> Program:
            program = Program(host, generation_node, generation, *nids)
            stack.callback(stop, program.process)
            stack.callback(program.leave)
            return program

        yield start


@pytest.mark.requirement("bck-025", "bck-030", "dyn-035", "dyn-040")
def test_static_1_a_multi_rail_client_with_a_single_rail_server(
    hosts: list[Host], start: Callable[..., Program]
) -> None:
    """The server hears from one NID only, though two could reach it, and is never pushed to."""
    a, b = hosts
    server = start(b, "old", b.nid(0))
    client = start(a, "new", a.nid(0), a.nid(1))
    assert client.ask(put=b.nid(0), count=MANY) == "done"
    sources, count = server.ask(heard=True)
    assert (len(sources), count, server.ask(counts=True)["dropped"]) == (1, MANY, 0)
    assert client.ask(peer=b.nid(0)) == [False, [b.nid(0)]]


@pytest.mark.requirement("bck-025", "bck-030", "dyn-055")
def test_static_2_a_multi_rail_server_with_a_single_rail_client(
    hosts: list[Host], start: Callable[..., Program]
) -> None:
    """Nobody asks the client anything until the server sends, which it does from the NI that was asked."""
    a, b = hosts
    server = start(b, "new", b.nid(0), b.nid(1))
    client = start(a, "old", a.nid(0))
    assert client.ask(put=b.nid(0), count=MANY) == "done"
    assert server.ask(heard=True) == [[a.nid(0)], MANY]
    assert server.ask(put=a.nid(0), count=MANY) == "done"
    assert client.ask(heard=True) == [[b.nid(0)], MANY]
    assert server.ask(peer=a.nid(0)) == [False, [a.nid(0)]]


class Routed:
    """A client on tcp1 and tcp2, a server on tcp3 and tcp4, a router of the old generation on all four."""

    def __init__(
        self, cluster: Cluster, start: Callable[..., Program], generation: str, server_nets: tuple[str, ...]
    ) -> None:
        """`generation` is the server's."""
        client, router, server = cluster.hosts
        for host, foreign in ((client, (2, 3)), (server, (0, 1))):
            for rail in foreign:
                host.set_link(rail, up=False)
        self.client_nids = [client.nid(rail, net) for rail, net in enumerate(NEAR)]
        self.server_nids = [server.nid(rail, net) for rail, net in enumerate(FAR, 2) if net in server_nets]
        gateways = [router.nid(rail, net) for rail, net in enumerate((*NEAR, *FAR))]
        self.router = start(router, "old", *gateways)
        assert self.router.ask(route=True) == "done"
        self.client = start(client, "new", *self.client_nids)
        self.server = start(server, generation, *self.server_nids)
        for net in server_nets:
            assert self.client.ask(reach=net, over=gateways[:2]) == "done"
        for net in NEAR:
            over = gateways[2:] if generation == "new" else gateways[2:3]
            assert self.server.ask(reach=net, over=over) == "done"

    def passed(self) -> int:
        """How many messages the router passed on; it dropped none."""
        counts = self.router.ask(counts=True)
        assert counts["dropped"] == 0
        assert isinstance(counts["routed"], int)
        return counts["routed"]


@pytest.mark.requirement("bck-025", "bck-030", "RTR")
def test_static_5_multi_rail_nodes_with_a_single_rail_router(
    make_cluster: Callable[..., Cluster], start: Callable[..., Program]
) -> None:
    """They discover each other through it, and use all rails; for them each of its NIDs is a router."""
    routed = Routed(make_cluster(hosts=3, rails=4), start, "new", FAR)
    client, server = routed.client, routed.server
    assert client.ask(put=routed.server_nids[0], count=4 * MANY) == "done"
    assert server.ask(heard=True) == [routed.client_nids, 4 * MANY]
    assert server.ask(put=routed.client_nids[1], count=4 * MANY) == "done"
    assert client.ask(heard=True) == [routed.server_nids, 4 * MANY]
    assert client.ask(peer=routed.server_nids[0]) == [True, routed.server_nids]
    assert server.ask(peer=routed.client_nids[0]) == [True, routed.client_nids]
    assert routed.passed() >= 16 * MANY  # PUTs and ACKs, both ways


@pytest.mark.requirement("bck-025", "bck-030", "RTR")
def test_static_6_a_multi_rail_client_with_a_single_rail_router_and_server(
    make_cluster: Callable[..., Cluster], start: Callable[..., Program]
) -> None:
    """The server hears from one NID, whichever way the message took, and is never pushed to."""
    routed = Routed(make_cluster(hosts=3, rails=4), start, "old", FAR[:1])
    client, server = routed.client, routed.server
    (there,) = routed.server_nids
    assert client.ask(put=there, count=4 * MANY) == "done"
    sources, count = server.ask(heard=True)
    assert (len(sources), count, server.ask(counts=True)["dropped"]) == (1, 4 * MANY, 0)
    assert client.ask(peer=there) == [False, [there]]
    assert server.ask(put=sources[0], count=MANY) == "done"
    assert client.ask(heard=True) == [[there], MANY]
    assert routed.passed() >= 10 * MANY

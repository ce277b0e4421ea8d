"""Nodes that upper layers have named, as on a mount: the primary NID that they keep, whatever is discovered.

`ulnet sim --recipe naming --seed N` plays one of the random runs again.
"""

from __future__ import annotations

import pytest

from support.routed import SETTLED, add_route, make_router
from ulnet.nid import Nid
from ulnet.sim import SimNode, Simulation
from ulnet.sim.discovering import discovery_in_order, knows
from ulnet.sim.naming import RECIPE, names_last
from ulnet.sim.random_run import find_failure, replay

CLIENT = ("10.0.0.1@tcp", "10.1.0.1@tcp1")
SERVER = ("10.0.0.2@tcp", "10.1.0.2@tcp1", "10.2.0.2@tcp1")
PORTAL = 30
ONCE_BROKEN = {
    2985: "the judge took a name that had given way for one that must last",
    4980: "the same, where it had given way between two looks",
    4729: "the same, where the node fell apart again, as discovery was switched off",
}
SHORT, LONG, CHUNK = 1_000, 30_000, 250


def world() -> tuple[Simulation, SimNode, SimNode]:
    sim = Simulation("names", thorough=True)
    sim.properties += [discovery_in_order, names_last]
    client, server = sim.node("client", *CLIENT), sim.node("server", *SERVER)
    for node in (client, server):
        node.attach(PORTAL)
    return sim, client, server


def nid(text: str) -> Nid:
    return Nid.parse(text)


def test_a_mount_keeps_the_name_that_it_was_given() -> None:
    """The server calls itself otherwise; its messages are told under the name all the same."""
    sim, client, server = world()
    inbox = client.inboxes[0]
    assert client.name_peer(SERVER[1], SERVER[0]) == nid(SERVER[1])
    put = client.put(SERVER[1], PORTAL, data=b"hello")
    sim.run_until_quiet()
    assert put.ok
    assert not knows(client, server)
    back = [server.put(target, PORTAL, data=b"back") for target in CLIENT for _ in range(10)]
    sim.run_until_quiet()
    assert all(one.ok for one in back)
    assert {delivery.initiator for delivery in inbox.deliveries} == {nid(SERVER[1])}
    assert {str(delivery.source) for delivery in inbox.deliveries} >= {SERVER[0], SERVER[1]}


def test_a_server_whose_first_nid_is_dead_is_mounted_by_the_others() -> None:
    sim, client, server = world()
    sim.link_down(nid(SERVER[0]))
    sim.run(5.0)
    assert client.name_peer(*SERVER[:2]) == nid(SERVER[0])
    puts = [client.put(SERVER[0], PORTAL, data=b"x") for _ in range(5)]
    sim.run_until_quiet()
    assert all(put.ok for put in puts)
    assert not knows(client, server)


def test_the_name_outlives_the_nid() -> None:
    """The NI goes, comes back, and the server restarts with another first NID: the name stays."""
    sim, client, server = world()
    client.name_peer(SERVER[0])
    sim.run_until_quiet()
    server.del_ni(SERVER[0])
    sim.run_until_quiet()
    peer = client.core.peers.find(nid(SERVER[1]))
    assert peer is not None
    assert peer.primary_nid == nid(SERVER[0])
    assert [pni.said_down for pni in peer.members.values()] == [True, False, False]
    put = client.put(SERVER[0], PORTAL, data=b"to the name")
    sim.run_until_quiet()
    assert put.ok
    server.add_ni(SERVER[0])
    sim.run_until_quiet()
    assert not knows(client, server)
    server.restart()
    sim.run(1.0)
    put = client.put(SERVER[0], PORTAL, data=b"to its new life")
    sim.run_until_quiet()
    assert put.ok
    assert client.core.peers.find(nid(SERVER[1])).primary_nid == nid(SERVER[0])  # type: ignore[union-attr]


@pytest.mark.requirement("bck-025")
def test_a_server_of_the_old_generation_keeps_its_name() -> None:
    """Each NID is a node for itself; the one that was named stays locked, through upgrade and downgrade."""
    sim = Simulation("names", thorough=True)
    sim.properties += [discovery_in_order, names_last]
    client = sim.node("client", *CLIENT)
    old = sim.single_rail("old", *SERVER[:2])
    client.name_peer(SERVER[1], SERVER[0])
    puts = [client.put(target, PORTAL, data=b"x") for target in SERVER[:2] for _ in range(4)]
    sim.run_until_quiet()
    assert all(put.ok for put in puts)
    assert old.pushes == 0
    for text in SERVER[:2]:
        peer = client.core.peers.find(nid(text))
        assert peer is not None
        assert (peer.primary_nid, peer.multi_rail, len(peer.members)) == (nid(text), False, 1)


@pytest.mark.requirement("RTR")
def test_a_server_behind_a_router_is_mounted() -> None:
    """None of its NIDs is on a net of the client; the name is the first that has a route."""
    sim = Simulation("names", thorough=True)
    sim.properties += [discovery_in_order, names_last]
    near, far = ("10.1.0.9@tcp1", "10.11.0.9@tcp11"), ("10.12.0.1@tcp12", "10.11.0.1@tcp11")
    make_router(sim.node("router", *near))
    client, server = sim.node("client", "10.1.0.1@tcp1"), sim.node("server", far[1])
    server.attach(PORTAL)
    add_route(client, "tcp11", near[0])
    add_route(server, "tcp1", near[1])
    sim.run(SETTLED)
    assert client.name_peer(*far) == nid(far[1])
    put = client.put(far[1], PORTAL, data=b"x")
    sim.run_until_quiet()
    assert put.ok
    assert not knows(client, server)


@pytest.mark.parametrize("start", range(0, SHORT, CHUNK))
def test_random_names_last(start: int) -> None:
    found = find_failure(RECIPE, range(start, start + CHUNK))
    assert found is None, f"ulnet sim --recipe naming --seed {found[0]}: {found[2]}"


@pytest.mark.long
@pytest.mark.parametrize("start", range(SHORT, LONG, CHUNK))
def test_many_random_names_last(start: int) -> None:
    test_random_names_last(start)


@pytest.mark.parametrize("seed", ONCE_BROKEN, ids=str)
def test_what_was_broken_once_stays_mended(seed: int) -> None:
    outcome = replay(RECIPE, seed, thorough=True)
    assert outcome.ok, outcome.failure


def test_the_judge_sees_a_name_that_is_lost() -> None:
    """A property that cannot fail would show nothing."""
    sim, client, _ = world()
    client.name_peer(SERVER[1])
    sim.run_until_quiet()
    peer = client.core.peers.find(nid(SERVER[1]))
    assert peer is not None
    assert not names_last(client)
    peer.primary_nid = nid(SERVER[0])
    assert "took its place" in names_last(client)
    peer.mark(remove=0x100000)
    assert "is not" in names_last(client)
    sim.properties.remove(names_last)
    client.core.peers.recreate(peer)
    assert "is no peer's" in names_last(client)

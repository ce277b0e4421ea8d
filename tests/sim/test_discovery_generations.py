"""Nodes with and without Multi-Rail side by side: the documents' use cases (HLD, "Use Case scenarios").

Static 1 to 3 and changes 1 and 2. Those with routers (static 4 to 6, changes 3 and 4) are with routing.
"""

from __future__ import annotations

import pytest

from ulnet.nid import Nid
from ulnet.sim import SimNode, Simulation
from ulnet.sim.discovering import discovery_in_order, knows
from ulnet.sim.foreign import SingleRailNode

CLIENT = ("10.0.0.1@tcp", "10.1.0.1@tcp1")
SERVERS = (("10.0.0.2@tcp", "10.1.0.2@tcp1"), ("10.0.0.3@tcp", "10.1.0.3@tcp1"))
PORTAL, BACK = 30, 31


def simulation() -> Simulation:
    sim = Simulation("generations", thorough=True)
    sim.properties.append(discovery_in_order)
    return sim


def new_node(sim: Simulation, name: str, nids: tuple[str, ...]) -> SimNode:
    node = sim.node(name, *nids)
    node.attach(PORTAL)
    return node


def talk(sim: Simulation, node: SimNode, *targets: str, count: int = 6) -> None:
    """Some PUTs and GETs, all of which do well."""
    done = [node.put(target, PORTAL, data=b"x" * 100) for target in targets for _ in range(count)]
    done += [node.get(target, PORTAL, 0, 100) for target in targets for _ in range(count)]
    sim.run_until_quiet()
    assert all(one.ok for one in done)


def sources(node: SingleRailNode) -> set[Nid]:
    """From which NIDs a single-rail node got PUTs."""
    return {heard.hdr.src_nid for heard in node.puts}


@pytest.mark.requirement("bck-025", "bck-030", "dyn-035", "dyn-040")
def test_static_1_multi_rail_client_with_single_rail_servers() -> None:
    """They hear from one NI only, and are never pushed to; each of their NIDs is a peer of its own."""
    sim = simulation()
    client = new_node(sim, "client", CLIENT)
    servers = [sim.single_rail(f"server{n}", *nids) for n, nids in enumerate(SERVERS)]
    for nids in SERVERS:
        talk(sim, client, nids[0])
    client.ping(SERVERS[0][0])
    sim.run_until_quiet()
    for server, nids in zip(servers, SERVERS, strict=True):
        assert sources(server) == {Nid.parse(CLIENT[0])}
        assert server.pushes == 0
        peer = client.core.peers.find(Nid.parse(nids[0]))
        assert peer is not None
        assert (peer.multi_rail, len(peer.members), peer.settled) == (False, 1, True)
        assert client.core.peers.find(Nid.parse(nids[1])) is None


@pytest.mark.requirement("bck-025", "bck-030")
def test_static_1_always_from_the_same_of_two_nis_on_one_net() -> None:
    sim = simulation()
    client = new_node(sim, "client", ("10.0.0.1@tcp", "10.0.0.11@tcp"))
    server = sim.single_rail("server", "10.0.0.2@tcp")
    talk(sim, client, "10.0.0.2@tcp", count=20)
    client.ping("10.0.0.2@tcp")
    client.call(client.node.discover("10.0.0.2@tcp", force=True))
    talk(sim, client, "10.0.0.2@tcp", count=20)
    assert len(sources(server)) == 1
    assert server.pushes == 0


@pytest.mark.requirement("bck-025", "bck-030", "dyn-055")
def test_static_2_multi_rail_servers_with_single_rail_clients() -> None:
    """Requests are answered along the way they came; a server's own leave from the NI that was asked."""
    sim = simulation()
    servers = [new_node(sim, f"server{n}", nids) for n, nids in enumerate(SERVERS)]
    client = sim.single_rail("client", CLIENT[0])
    client.put(Nid.parse(CLIENT[0]), Nid.parse(SERVERS[0][0]), PORTAL, b"hello")
    client.ping(Nid.parse(CLIENT[0]), Nid.parse(SERVERS[0][0]))
    sim.run_until_quiet()
    assert servers[0].core.stats.send_count == 1  # the answer to the ping: nobody asked the client anything
    talk(sim, servers[0], CLIENT[0])
    assert sources(client) == {Nid.parse(SERVERS[0][0])}
    assert client.pushes == 0


@pytest.mark.requirement("bck-025", "bck-030", "dyn-005", "snd-045")
def test_static_3_multi_rail_clients_and_servers() -> None:
    sim = simulation()
    client = new_node(sim, "client", CLIENT)
    servers = [new_node(sim, f"server{n}", nids) for n, nids in enumerate(SERVERS)]
    for nids in SERVERS:
        talk(sim, client, nids[0], count=20)
    for server in servers:
        assert not knows(client, server)
        assert not knows(server, client)
        assert all(ni.stats.received[1] >= 5 for nid, ni in server.core.nis.items() if not nid.is_lo)


def leave(sim: Simulation, old: SimNode | SingleRailNode) -> None:
    """A host goes, so that its addresses can come back with other software."""
    old.kill()
    for port in old.host.ports.values():
        for address in port.addresses:
            del port.switch.ports[address]
    old.host.ports.clear()
    sim.run(0.1)


@pytest.mark.requirement("bck-030")
def test_change_1_a_client_is_upgraded() -> None:
    """From its first word on, the upgraded client is one peer with all its rails."""
    sim = simulation()
    server = new_node(sim, "server", SERVERS[0])
    old = sim.single_rail("old", CLIENT[0])
    talk(sim, server, CLIENT[0])
    peer = server.core.peers.find(old.nid)
    assert peer is not None
    assert not peer.multi_rail
    leave(sim, old)
    client = new_node(sim, "client", CLIENT)
    talk(sim, client, SERVERS[0][0])
    assert not knows(server, client)
    assert not knows(client, server)
    talk(sim, server, CLIENT[1])


@pytest.mark.requirement("bck-030")
def test_change_1_a_server_that_only_asks_notices_the_upgrade_when_told_to_look() -> None:
    sim = simulation()
    server = new_node(sim, "server", SERVERS[0])
    old = sim.single_rail("old", CLIENT[0])
    talk(sim, server, CLIENT[0])
    leave(sim, old)
    client = new_node(sim, "client", CLIENT)
    server.core.peer_restarted(Nid.parse(CLIENT[0]))
    talk(sim, server, CLIENT[0])
    assert not knows(server, client)


@pytest.mark.requirement("bck-030")
def test_change_2_a_client_is_downgraded() -> None:
    """Once the server looks again, the client is one NID, heard from one NI, as if it had never been more."""
    sim = simulation()
    server = new_node(sim, "server", SERVERS[0])
    client = new_node(sim, "client", CLIENT)
    talk(sim, client, SERVERS[0][0])
    leave(sim, client)
    old = sim.single_rail("old", CLIENT[0])
    server.core.peer_restarted(Nid.parse(CLIENT[0]))
    talk(sim, server, CLIENT[0])
    peer = server.core.peers.find(Nid.parse(CLIENT[0]))
    assert peer is not None
    assert not peer.multi_rail
    assert len(sources(old)) == 1
    assert old.pushes == 0

"""The documents' races of discovery, 1 to 12, each replayed by seeds (HLD, "Use case scenarios")."""

from __future__ import annotations

import pytest

from ulnet.core.peer import Peer
from ulnet.nid import LNET_PID, Nid
from ulnet.sim import LinkParams, SimNode, Simulation
from ulnet.sim.discovering import discovery_in_order, knows
from ulnet.sim.foreign import ForeignNode, Heard
from ulnet.wire.lnet import NO_WMD, PING_MATCH_BITS, Header, MsgType
from ulnet.wire.ping import NiEntry, PingInfo

A = ("10.0.0.1@tcp", "10.1.0.1@tcp1")
B = ("10.0.0.2@tcp", "10.1.0.2@tcp1")
SEEDS = range(8)
SLOW = LinkParams(delay=1e-3)
WILD = LinkParams(delay=1e-4, jitter=5e-3, ordered=False)  # messages overtake one another

race = pytest.mark.requirement("HLD-fsm")


def simulation(seed: int, link: LinkParams = WILD) -> Simulation:
    sim = Simulation(seed, link=link, thorough=True)
    sim.properties.append(discovery_in_order)
    return sim


def two(seed: int, link: LinkParams = WILD) -> tuple[Simulation, SimNode, SimNode]:
    sim = simulation(seed, link)
    a, b = sim.node("a", *A), sim.node("b", *B)
    a.attach(30)
    b.attach(30)
    return sim, a, b


def peer(node: SimNode, nid: str) -> Peer:
    found = node.core.peers.find(Nid.parse(nid))
    assert found is not None
    return found


def pushes(node: SimNode) -> int:
    """How many PUTs left a node."""
    return sum(ni.stats.sent[int(MsgType.PUT)] for ni in node.core.nis.values())


def know_each_other(*nodes: SimNode) -> None:
    for node in nodes:
        for other in nodes:
            assert node is other or not knows(node, other)


@race
@pytest.mark.requirement("dyn-055")
@pytest.mark.parametrize("seed", SEEDS)
def test_race_01_a_ping_is_answered_before_the_asking_node_is_known(seed: int) -> None:
    sim, a, b = two(seed, SLOW)
    put = a.put(B[0], 30, data=b"x")
    sim.run_until(lambda: b.core.peers.find(Nid.parse(A[0])) is not None)
    seen = peer(b, A[0])
    assert (seen.multi_rail, seen.flags, len(seen.members)) == (False, 0, 1)
    assert pushes(b) == 0
    sim.run_until_quiet()
    assert put.ok
    assert peer(b, A[1]) is peer(b, A[0])
    know_each_other(a, b)


@race
@pytest.mark.requirement("dyn-005", "dyn-020", "dyn-025")
@pytest.mark.parametrize("seed", SEEDS)
def test_race_02_several_nids_of_one_node_are_discovered_at_once(seed: int) -> None:
    sim, a, b = two(seed)
    puts = [a.put(nid, 30, data=b"x") for nid in B]
    assert len(a.core.peers) == 2
    sim.run_until_quiet()
    assert all(put.ok for put in puts)
    know_each_other(a, b)
    assert pushes(a) - len(puts) == 1  # no second push for the second NID


@race
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("moment", [0.0005, 0.0025, 0.0045, 0.0065])
def test_race_03_configuration_and_discovery_change_one_peer_at_once(seed: int, moment: float) -> None:
    sim, a, _ = two(seed, SLOW)
    puts = [a.put(B[1], 30, data=b"x") for _ in range(3)]
    sim.run(moment)
    a.add_peer(*B)
    sim.run_until_quiet()
    assert all(put.ok for put in puts)
    assert peer(a, B[0]).configured
    assert list(peer(a, B[0]).nids()) == [Nid.parse(nid) for nid in B]
    assert a.put(B[0], 30, data=b"x") is not None
    sim.run_until_quiet()


@race
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("what", ["peer", "NID"])
@pytest.mark.parametrize("moment", [0.0005, 0.0025, 0.0045, 0.0065, 0.02])
def test_race_04_what_discovery_uses_is_deleted(seed: int, what: str, moment: float) -> None:
    sim, a, b = two(seed, SLOW)
    puts = [a.put(B[0], 30, data=b"x") for _ in range(3)]
    sim.run(moment)
    found = peer(a, B[0])
    if what == "peer":
        a.core.peers.delete(found.primary_nid)
    elif found.owns(Nid.parse(B[1])):
        a.core.peers.delete(found.primary_nid, [Nid.parse(B[1])])
    sim.run_until_quiet()
    assert all(put.ok for put in puts)
    a.call(a.node.discover(B[0]))
    sim.run_until_quiet()
    know_each_other(a, b)


@race
@pytest.mark.requirement("dyn-060", "cfg-080")
@pytest.mark.parametrize("seed", SEEDS)
def test_race_05_discovery_meets_what_was_configured(seed: int) -> None:
    """Configuration wins, as in today's LNet; what it says wrongly is told."""
    sim, a, _ = two(seed)
    a.add_peer(B[0], "10.0.0.77@tcp")
    put = a.put(B[0], 30, data=b"x")
    sim.run_until(lambda: peer(a, B[0]).settled)
    told = peer(a, B[0])
    assert list(told.nids()) == [Nid.parse(B[0]), Nid.parse("10.0.0.77@tcp")]
    assert told.differences == (
        f"peer {B[0]} lists {B[1]}, which is not configured",
        f"peer {B[0]} is configured with 10.0.0.77@tcp, which it does not list",
    )
    assert all(line in a.reports for line in told.differences)
    sim.run_until_quiet()
    assert put.ended


@race
@pytest.mark.requirement("dyn-040")
@pytest.mark.parametrize("seed", SEEDS)
def test_race_06_only_the_asking_node_discovers(seed: int) -> None:
    sim, a, b = two(seed)
    b.core.set_discovery(0)
    puts = [a.put(nid, 30, data=b"x") for nid in B]
    sim.run_until_quiet()
    assert all(put.ok for put in puts)
    assert [peer(a, nid).flags for nid in B] == [0x112, 0x112]
    assert pushes(a) == len(puts)
    assert not peer(b, A[0]).multi_rail


@race
@pytest.mark.requirement("dyn-040")
@pytest.mark.parametrize("seed", SEEDS)
def test_race_07_only_the_asked_node_discovers(seed: int) -> None:
    sim, a, b = two(seed)
    a.core.set_discovery(0)
    put = a.put(B[0], 30, data=b"x")
    sim.run_until_quiet()
    assert put.ok
    assert peer(a, B[0]).flags == 0x112
    back = b.put(A[0], 30, data=b"x")
    sim.run_until_quiet()
    assert back.ok
    assert peer(b, A[0]).flags == 0x112
    assert pushes(b) == 1


@race
@pytest.mark.parametrize("seed", SEEDS)
def test_race_08_discovery_is_switched_on_later(seed: int) -> None:
    """Nothing is sent at that moment; each peer is discovered at its next message."""
    sim, a, b = two(seed)
    a.core.set_discovery(0)
    puts = [a.put(B[0], 30, data=b"x")]
    sim.run_until_quiet()
    sent = a.core.stats.send_count
    a.core.set_discovery(1)
    sim.run(1.0)
    assert a.core.stats.send_count == sent
    puts.append(a.put(B[0], 30, data=b"x"))
    sim.run_until_quiet()
    assert all(put.ok for put in puts)
    know_each_other(a, b)


class Scripted:
    """A multi-rail peer that says what the test wants, in the order the test wants."""

    def __init__(self, sim: Simulation) -> None:
        self.node: ForeignNode = sim.foreign("b", *B, on_message=self._heard)
        self.nids = [Nid.parse(nid) for nid in B]
        self.sequence = 2
        self.pings = 0
        self.ledger = sim.ledger

    def info(self, sequence: int, *nids: Nid) -> bytes:
        return PingInfo(0x1E, LNET_PID, sequence, [NiEntry(nid) for nid in nids]).pack()

    def push(self, to: Nid, sequence: int, *nids: Nid) -> None:
        data = self.info(sequence, *nids)
        put = Header(int(MsgType.PUT), to, self.nids[0], LNET_PID, LNET_PID, len(data))
        put.match_bits = PING_MATCH_BITS
        self.node.send(self.nids[0], to, put, data)

    def _heard(self, heard: Heard) -> None:
        hdr = heard.hdr
        if hdr.type == MsgType.GET:
            self.pings += 1
            data = self.info(self.sequence, *self.nids)
            kind = MsgType.REPLY
        elif hdr.wmd != NO_WMD:
            data, kind = b"", MsgType.ACK
            if hdr.portal:
                self.ledger.delivered(hdr.hdr_data, heard.payload)
        else:
            return
        answer = Header(int(kind), hdr.src_nid, heard.at, hdr.src_pid, LNET_PID, len(data), wmd=hdr.wmd)
        if kind is MsgType.ACK:
            answer.length = len(heard.payload)
        self.node.send(heard.at, hdr.src_nid, answer, data)


@race
@pytest.mark.parametrize("seed", SEEDS)
def test_race_09_pushes_arrive_in_the_wrong_order(seed: int) -> None:
    """The older push changes nothing: its number is lower, so the peer is asked for how things are."""
    sim = simulation(seed, SLOW)
    a = sim.node("a", *A)
    b = Scripted(sim)
    put = a.put(B[0], 30, data=b"x")
    sim.run_until_quiet()
    third = Nid.parse("10.2.0.2@tcp2")
    here = Nid.parse(A[0])
    b.sequence, b.nids = 4, [*b.nids, third]
    b.push(here, 4, *b.nids)  # an NI was added …
    b.push(here, 3, b.nids[0])  # … and here comes what was true before that
    pings = b.pings
    sim.run_until_quiet()
    assert put.ok
    assert set(peer(a, B[0]).members) == set(b.nids)
    assert peer(a, B[0]).remote_sequence == 4
    assert b.pings == pings + 1


@race
@pytest.mark.parametrize("seed", SEEDS)
def test_race_09_a_peer_that_began_anew_counts_from_below(seed: int) -> None:
    """A lower number is not always old: who restarted with other NIDs is believed, once asked."""
    sim = simulation(seed, SLOW)
    a = sim.node("a", *A)
    b = Scripted(sim)
    b.sequence = 9
    a.put(B[0], 30, data=b"x")
    sim.run_until_quiet()
    b.sequence, b.nids = 2, b.nids[:1]
    b.push(Nid.parse(A[0]), 2, *b.nids)
    sim.run_until_quiet()
    assert list(peer(a, B[0]).members) == b.nids
    assert peer(a, B[0]).remote_sequence == 2


@race
@pytest.mark.parametrize("seed", range(24))
def test_race_10_two_nodes_discover_each_other_at_once(seed: int) -> None:
    sim, a, b = two(seed)
    puts = [a.put(B[0], 30, data=b"x")]
    sim.run((seed % 4) * 0.002)  # the variations: before, during and after the other's ping and push
    puts.append(b.put(A[0], 30, data=b"x"))
    sim.run_until_quiet()
    assert all(put.ok for put in puts)
    know_each_other(a, b)


@race
@pytest.mark.parametrize("seed", range(24))
def test_race_11_the_second_answer_finds_the_peer_that_the_first_made(seed: int) -> None:
    sim, a, b = two(seed)
    puts = [a.put(nid, 30, data=b"x") for nid in B for _ in range(3)]
    sim.run((seed % 4) * 0.002)
    puts += [a.put(nid, 30, data=b"x") for nid in reversed(B)]
    sim.run_until_quiet()
    assert all(put.ok for put in puts)
    assert len(a.core.peers) == len(b.core.peers) == 1
    assert pushes(a) - len(puts) == 1
    know_each_other(a, b)


@race
@pytest.mark.parametrize("seed", range(24))
def test_race_12_two_nodes_discover_each_other_over_several_nids_at_once(seed: int) -> None:
    sim, a, b = two(seed)
    puts = [node.put(nid, 30, data=b"x") for node, nids in ((a, B), (b, A)) for nid in nids]
    sim.run((seed % 4) * 0.002)
    a.del_ni(A[1])
    a.add_ni(A[1])
    sim.run_until_quiet()
    assert all(put.ended for put in puts)
    for node, nid in ((a, B[0]), (b, A[0])):
        node.call(node.node.discover(nid))
    sim.run_until_quiet()
    know_each_other(a, b)

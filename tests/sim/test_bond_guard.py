"""PUTs between bonding NIs whose path is lost are sent again over another slave, and delivered once."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import pytest

from support.bonded import ScriptedBond, bond_of, bond_yaml, bonded
from support.resets import reset
from ulnet.core.credits import Credits
from ulnet.core.faults import Fault, FaultKind
from ulnet.core.guard.identity import AGAIN, FIRST, is_identity, tag_of
from ulnet.core.md import Md
from ulnet.core.memory import Memory
from ulnet.core.status import HealthStatus
from ulnet.nid import ANY_NID, Nid
from ulnet.sim import LinkParams, Simulation
from ulnet.sim.node import SimNode
from ulnet.sim.traffic import Operation
from ulnet.wire.bond import BondHello, Configuration, Kind, Mode, SlaveEntry
from ulnet.wire.lnet import Header, MsgType

B_BOND = "10.0.0.2@bond0"
A = ("10.0.0.1@tcp", "10.1.0.1@tcp1")
B = ("10.0.0.2@tcp", "10.1.0.2@tcp1")
RATE = 1e8
COUNT = 40

Cut = Callable[[Simulation], object]
CUTS: dict[str, Cut] = {
    "link down near": lambda sim: sim.link_down("a.eth0"),
    "link down far": lambda sim: sim.link_down("b.eth0"),
    "black hole": lambda sim: sim.partition(["a.eth0"], ["b.eth0"]),
    "black hole there": lambda sim: sim.partition(["a.eth0"], ["b.eth0"], both=False),
    "black hole back": lambda sim: sim.partition(["b.eth0"], ["a.eth0"], both=False),
}


def pair(sim: Simulation, guards: tuple[bool, bool] = (True, True), **options: object) -> list[SimNode]:
    """Two nodes with a bonding NI each, which are connected."""
    nodes = []
    for name, nids, guard in zip("ab", (A, B), guards, strict=True):
        node = bonded(sim, name, *nids, **options)
        node.core.state.guards = guard
        nodes.append(node)
    a, b = nodes
    b.attach(30)
    for _ in range(4):
        a.put(B_BOND, 30, data=b"hello")
        sim.run(1)
    return nodes


def load(a: SimNode, size: int = 100_000, count: int = COUNT) -> list[Operation]:
    return [a.put(B_BOND, 30, data=bytes([n % 256]) * size) for n in range(count)]


def some_on_the_default_slave(sim: Simulation, b: SimNode) -> None:
    before = b.host.ports["eth0"].received
    sim.run_until(lambda: b.host.ports["eth0"].received > before + 120_000)


def once(b: SimNode, puts: list[Operation]) -> None:
    """All were acknowledged, and delivered whole exactly once."""
    assert [(put.status, put.reason) for put in puts if not put.ok] == []
    times = b.inboxes[0].times
    assert [times[put.number] for put in puts] == [1] * len(puts)


@pytest.mark.requirement("BOND-modes", "BOND-health", "snd-045")
@pytest.mark.parametrize("mode", ["standby", "loadbalance"])
@pytest.mark.parametrize("size", [500, 100_000])
@pytest.mark.parametrize("cut", CUTS)
def test_a_cut_slave_costs_no_acknowledged_put(cut: str, size: int, mode: str) -> None:
    sim = Simulation(seed=cut, link=LinkParams(rate=RATE))
    a, b = pair(sim, mode=mode)
    puts = load(a, size, COUNT if size > 1000 else 1000)
    some_on_the_default_slave(sim, b)
    began = sim.now
    CUTS[cut](sim)
    sim.run_until(lambda: all("ACK" in put.events for put in puts), 60, must=False)
    assert sim.now - began < 6  # at worst, a keepalive that was not answered
    once(b, puts)
    sim.heal()
    for port in ("a.eth0", "b.eth0"):
        sim.link_up(port)
    sim.run_until_quiet()  # what was left on the rail comes late
    once(b, puts)
    assert sim.ledger.duplicates == 0


@pytest.mark.requirement("BOND-modes")
@pytest.mark.parametrize("cut", ["link down near", "link down far", "black hole"])
def test_standby_goes_on_within_three_tenths_of_a_second(cut: str) -> None:
    sim = Simulation(seed=cut, link=LinkParams(rate=RATE))
    a, b = pair(sim)
    puts = load(a, 1 << 20)
    some_on_the_default_slave(sim, b)
    began, before = sim.now, b.host.ports["eth1"].received
    CUTS[cut](sim)
    sim.run_until(lambda: b.host.ports["eth1"].received > before + (1 << 20), 10)
    assert sim.now - began <= 0.3
    sim.run_until_quiet()
    once(b, puts)


@pytest.mark.parametrize("seconds", [0.3, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("cut", ["black hole", "black hole back", "link down far"])
def test_late_originals_are_recognised(cut: str, seconds: float) -> None:
    sim = Simulation(seed=3, link=LinkParams(rate=RATE))
    a, b = pair(sim)
    puts = load(a)
    some_on_the_default_slave(sim, b)
    CUTS[cut](sim)
    sim.run(seconds)
    more = load(a)
    sim.heal()
    sim.link_up("b.eth0")
    sim.run_until_quiet()
    once(b, puts + more)
    assert a.core.stats.resend_count > 0


@pytest.mark.requirement("BOND-modes")
@pytest.mark.parametrize("mode", ["standby", "loadbalance"])
def test_the_answer_to_a_resend_comes_back_its_way(mode: str) -> None:
    """The peer sent nothing, so it cannot know that its active slave does not reach us."""
    sim = Simulation(seed=8)
    a, b = pair(sim, mode=mode)
    sim.partition(["a.eth0"], ["b.eth0"])
    puts = [a.put(B_BOND, 30, data=bytes(10_000)) for _ in range(2)]
    sim.run_until(lambda: all("ACK" in put.events for put in puts), 1)
    sim.heal()
    sim.run_until_quiet()
    once(b, puts)


def test_a_broken_connection_costs_nothing() -> None:
    sim = Simulation(seed=7, link=LinkParams(rate=RATE))
    a, b = pair(sim)
    puts = load(a)
    some_on_the_default_slave(sim, b)
    reset(b, "eth0")
    sim.run_until_quiet()
    once(b, puts)


@pytest.mark.requirement("BOND-hello")
@pytest.mark.parametrize("cut", ["link down near", "black hole"])
def test_a_peer_without_guard_gets_no_resend_of_what_may_have_arrived(cut: str) -> None:
    sim = Simulation(seed=cut, link=LinkParams(rate=RATE))
    a, b = pair(sim, guards=(True, False))
    assert bond_of(a).peers[Nid.parse(B_BOND)].guard == b""
    load(a)
    some_on_the_default_slave(sim, b)
    CUTS[cut](sim)
    sim.run(60)
    sim.heal()
    sim.link_up("a.eth0")
    sim.run_until_quiet(2000)
    assert sim.ledger.duplicates == 0


def test_a_restarted_peer_is_not_given_what_its_former_life_may_have() -> None:
    sim = Simulation(seed=5, link=LinkParams(rate=RATE))
    a, b = pair(sim)
    load(a)
    some_on_the_default_slave(sim, b)
    known = bond_of(a).peers[Nid.parse(B_BOND)].guard
    assert known == tag_of(b.core.state.cookie)
    b.kill(silent=True)
    sim.run(0.5)
    b.restart()
    sim.run_until_quiet(2000)
    assert sim.ledger.duplicates == 0
    again = load(a)
    sim.run_until_quiet()
    assert all(put.ok for put in again)
    assert bond_of(a).peers[Nid.parse(B_BOND)].guard == tag_of(b.core.state.cookie) != known


@pytest.mark.requirement("BOND-hello")
@pytest.mark.parametrize("mode", ["standby", "loadbalance"])
@pytest.mark.parametrize("quiet", [0.5, 100])
def test_a_copy_that_a_new_life_of_the_peer_drops_ends_with_its_hello(quiet: float, mode: str) -> None:
    """It had left over the other slave before the HELLO, and ended by its time-out, after 150 seconds."""
    sim = Simulation(seed=2)
    a, b = pair(sim, mode=mode)
    sim.run(quiet)
    b.kill(silent=True)
    sim.run(1)
    b.restart()
    sim.run(quiet)
    puts = load(a, 2000, 6)
    gets = [a.get(B_BOND, 30, size=100) for _ in range(2)]
    sim.run(5)
    assert {one.status for one in puts + gets} == {-errno.ECONNRESET}, [one.reason for one in puts + gets]
    assert [b.inboxes[0].times[put.number] for put in puts] == [0] * len(puts)
    later = load(a, 2000, 6)
    sim.run_until_quiet()
    once(b, later)


@pytest.mark.requirement("BOND-hello")
@pytest.mark.parametrize("who", ["its slave", "somebody else"])
def test_who_is_believed_because_the_peer_is_silent_ends_no_copy(who: str) -> None:
    sim = Simulation(seed=2)
    a = bonded(sim, "a", A[0], "10.0.1.1@tcp")
    b = ScriptedBond(sim, "b", B[0])  # acknowledges no data, and answers no HELLO
    m = ScriptedBond(sim, "m", "10.0.0.66@tcp")

    def hello(by: ScriptedBond, number: int, tag: bytes) -> None:
        slaves = (SlaveEntry(b.nid), SlaveEntry(m.nid))[: 1 + (by is m)]
        told = BondHello(number, 0, Configuration(b.bond, slaves, Mode.STANDBY), (7,), guard=tag)
        by.say(Nid.parse(A[0]), Kind.HELLO, told.pack())

    hello(b, 9, b"\x12\x34")
    sim.run(0.05)
    put = a.put(b.bond, 30, data=b"x")
    sim.run(0.05)
    sim.link_down("a.eth0")
    sim.run(0.5)
    sim.link_up("a.eth0")
    assert [one.hdr.wmd[15] for one in b.data] == [FIRST, AGAIN]
    hello(b if who == "its slave" else m, 70_000, b"\x56\x78")
    peer = bond_of(a).peers[b.bond]
    sim.run_until(lambda: peer.guard == b"\x56\x78", 5)
    sim.run(0.1)
    assert put.status == (-errno.ECONNRESET if who == "its slave" else None), put.reason


@pytest.mark.requirement("BOND-hello")
def test_hellos_of_a_peer_that_keeps_no_identities_end_no_put_that_left_once() -> None:
    """Whichever life it comes to takes it. The second HELLO is like that of an NI that was made anew."""
    sim = Simulation(seed=2)
    a = bonded(sim, "a", A[0], "10.0.1.1@tcp")
    b = ScriptedBond(sim, "b", B[0])  # acknowledges no data

    def hello(number: int, mask: int, tag: bytes) -> None:
        told = BondHello(number, 0, b.configuration(Mode.STANDBY), (mask,), guard=tag)
        b.say(Nid.parse(A[0]), Kind.HELLO, told.pack())

    hello(9, 7, b"\x12\x34")
    sim.run(0.05)
    put = a.put(b.bond, 30, data=b"x")
    sim.run(0.05)
    peer = bond_of(a).peers[b.bond]
    for number in (70_000, 140_000):
        hello(number, 3, b"")
        sim.run(5)  # the silent peer is asked first
        assert peer.incarnation == number
    assert [one.hdr.wmd[15] for one in b.data] == [FIRST]
    assert put.status is None, put.reason


@pytest.mark.pure
@pytest.mark.requirement("BOND-hello")
def test_hellos_of_many_lives_have_copies_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them had all that is under way to the peer's slaves looked through."""
    sim = Simulation(seed=2)
    a = bonded(sim, "a", A[0], "10.0.1.1@tcp")
    b = ScriptedBond(sim, "b", B[0])  # acknowledges no data
    bond = bond_of(a)

    def hello(number: int, tag: bytes, *others: str) -> None:
        slaves = tuple(SlaveEntry(nid) for nid in (b.nid, *map(Nid.parse, others)))
        told = BondHello(number, 0, Configuration(b.bond, slaves, Mode.STANDBY), (7,), guard=tag)
        bond.handshake.take_hello(told, bond.slaves.nis[0], b.nid)

    a.loop.enter(hello, 9, b"\x12\x34")
    sim.run(0.05)
    put = a.put(b.bond, 30, data=b"x")
    sim.run(0.05)
    sim.link_down("a.eth0")
    sim.run(0.5)
    sim.link_up("a.eth0")
    assert [one.hdr.wmd[15] for one in b.data] == [FIRST, AGAIN]
    looks: list[Nid] = []
    at_hop = Memory.at_hop

    def noted(memory: Memory, nid: Nid) -> list[Md]:
        looks.append(nid)
        return at_hop(memory, nid)

    monkeypatch.setattr(Memory, "at_hop", noted)

    def hellos() -> None:
        for number in range(20):
            hello(70_000 * (number + 1), bytes((0x56, number)), f"10.0.0.{number + 10}@tcp")

    a.loop.enter(hellos)
    sim.run(0.001)
    assert put.status == -errno.ECONNRESET
    assert b.nid in looks
    assert len(looks) == len(set(looks))


def lowest(sim: Simulation, node: SimNode) -> int:
    """The least health of its bonding NI in the next 20 s."""
    least = bond_of(node).ni.health
    for _ in range(200):
        sim.run(0.1)
        least = min(least, bond_of(node).ni.health)
    return least


@pytest.mark.requirement("BOND-health")
@pytest.mark.parametrize("silent", [True, False])
def test_what_a_restart_of_the_peer_ends_is_not_charged_here(silent: bool) -> None:
    sim = Simulation(seed=5, link=LinkParams(rate=RATE))
    a, b = pair(sim)
    puts = load(a)
    some_on_the_default_slave(sim, b)
    b.kill(silent=silent)
    sim.run(0.5)
    b.restart()
    assert lowest(sim, a) == 1000
    sim.run_until_quiet(2000)
    assert any("the peer was restarted" in put.reason for put in puts)
    assert not any(bond_of(a).ni.health_stats.by_status)


@pytest.mark.requirement("BOND-health")
def test_messages_that_are_cancelled_before_the_handshake_charge_nobody() -> None:
    sim = Simulation(seed=6)
    a, b = (bonded(sim, name, *nids) for name, nids in (("a", A), ("b", B)))
    b.attach(30)
    puts = load(a)  # they wait for the handshake
    for put in puts:
        assert put.md is not None
        a.loop.enter(a.core.memory.md_unlink, put.md)
    assert lowest(sim, a) == 1000
    assert {(put.status, put.reason) for put in puts} == {
        (-errno.ECANCELED, "the memory descriptor was unlinked before the message left")
    }
    assert not any(bond_of(a).ni.health_stats.by_status)
    later = a.put(B_BOND, 30, data=b"x")
    sim.run_until_quiet()
    assert later.ok


@pytest.mark.requirement("BOND-hello")
def test_messages_that_waited_for_the_handshake_are_named_too() -> None:
    sim = Simulation(seed=6, link=LinkParams(rate=RATE))
    a, b = (bonded(sim, name, *nids) for name, nids in (("a", A), ("b", B)))
    b.attach(30)
    puts = load(a)  # nothing is known of b yet
    some_on_the_default_slave(sim, b)
    sim.partition(["a.eth0"], ["b.eth0"])
    sim.run_until(lambda: all("ACK" in put.events for put in puts), 30)
    once(b, puts)
    sim.run_until_quiet()


@pytest.mark.requirement("BOND-hello")
@pytest.mark.parametrize(
    ("masks", "tag", "kept"),  # a node of before says 3; what follows its HELLO is no tag
    [((7,), b"\x12\x34", b"\x12\x34"), ((3,), b"\x12\x34", b""), ((7, 1), b"ab", b"ab")],
)
def test_the_tag_counts_where_the_capability_is_told(masks: tuple[int, ...], tag: bytes, kept: bytes) -> None:
    sim = Simulation(seed=1)
    a = bonded(sim, "a", *A)
    b = ScriptedBond(sim, "b", B[0])
    told = BondHello(9, 0, b.configuration(Mode.STANDBY), masks, guard=tag if masks[0] & 4 else b"")
    b.say(Nid.parse(A[0]), Kind.HELLO, told.pack() + (tag if not masks[0] & 4 else b""))
    sim.run(0.05)
    assert bond_of(a).peers[b.bond].guard == kept
    a.put(b.bond, 30, data=b"x")
    sim.run(0.05)
    (heard,) = (one.hdr for one in b.data)
    assert heard.type == MsgType.PUT
    assert is_identity(heard.wmd) == bool(kept)
    if kept:
        assert heard.wmd[13:15] == kept
    (hello,) = b.hellos
    assert hello.guard == tag_of(a.core.state.cookie)
    assert hello.capabilities == (7,)


class Chaos:
    """Three nodes with three slaves each; paths fail at random, and both ends of all links come back."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(f"bond guard/{seed}")
        ordered = self.rng.random() < 0.7
        self.sim = Simulation(seed=seed, link=LinkParams(rate=RATE, ordered=ordered))
        self.nodes = [
            bonded(
                self.sim,
                f"n{number}",
                *(f"10.{rail}.0.{number}@tcp{rail}" for rail in range(3)),
                keepalive=1,
                mode=self.rng.choice(("standby", "loadbalance")),
            )
            for number in (1, 2, 3)
        ]
        for node in self.nodes:
            node.attach(30, keep_data=False)
        self.puts: list[tuple[SimNode, Operation]] = []

    def traffic(self) -> None:
        node, other = self.rng.sample(range(3), 2)
        size = self.rng.choice((100, 5_000, 200_000))
        for _ in range(self.rng.randrange(1, 12)):
            operation = self.nodes[node].put(f"10.0.0.{other + 1}@bond0", 30, data=bytes(size))
            self.puts.append((self.nodes[other], operation))

    def fail_one_rail(self) -> None:
        """Of all nodes, at most one rail is bad at a time: so there is always a way."""
        sim, rng = self.sim, self.rng
        rail = rng.randrange(3)
        ports = [f"n{number}.eth{rail}" for number in (1, 2, 3)]
        one, other = rng.sample(ports, 2)
        how = rng.choice(("down", "hole", "half", "reset"))
        if how == "down":
            sim.link_down(one)
        elif how == "reset":
            node, name = one.split(".")
            reset(self.nodes[int(node[1:]) - 1], name)
        else:
            sim.partition([one], [other], both=how == "hole")
        for _ in range(rng.randrange(1, 5)):
            self.traffic()
            sim.run(rng.choice((0.001, 0.05, 0.5, 3.0)))
        sim.heal()
        sim.link_up(one)
        sim.run_until(self.all_work, 200)

    def all_work(self) -> bool:
        """Whether keepalives have found that every path works again; they go to peers in use only."""
        for node in self.nodes:
            for peer in bond_of(node).peers.values():
                peer.used_at = bond_of(node).clock()
                bond_of(node).monitor.wanted()
        paths = [path for node in self.nodes for peer in bond_of(node).peers.values() for path in peer.paths]
        return all(path.works for path in paths)


def chaos(seed: int) -> Chaos:
    one = Chaos(seed)
    one.traffic()
    one.sim.run(2)
    for _ in range(8):
        one.traffic()
        one.sim.run(one.rng.choice((0.0005, 0.01)))
        one.fail_one_rail()
    one.sim.run_until_quiet(2000)
    return one


@pytest.mark.requirement("BOND-health", "BOND-modes")
@pytest.mark.parametrize("seed", range(10))
def test_each_message_comes_once_while_paths_fail_at_random(seed: int) -> None:
    one = chaos(seed)
    assert [(put.status, put.reason) for _, put in one.puts if not put.ok] == []
    assert [node.inboxes[0].times[put.number] for node, put in one.puts] == [1] * len(one.puts)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1150))
def test_each_message_comes_once_in_many_runs(seed: int) -> None:
    test_each_message_comes_once_while_paths_fail_at_random(seed)


def test_headers_of_the_scripted_peer_are_plain() -> None:
    """What the tests above rely on: a header that nobody named is no identity."""
    assert not is_identity(Header(int(MsgType.PUT), Nid.parse(A[0]), Nid.parse(B[0]), 1, 1).wmd)


@pytest.mark.requirement("BOND-modes", "BOND-health")
@pytest.mark.parametrize("mode", ["standby", "loadbalance"])
@pytest.mark.parametrize("size", [500, 100_000])
def test_what_was_lost_while_no_slave_was_left_goes_over_one_that_is_on_again(size: int, mode: str) -> None:
    sim = Simulation(seed=mode, link=LinkParams(rate=RATE))
    a, b = pair(sim, mode=mode)
    bond = bond_of(a)
    a.loop.enter(bond.switch, 0, False)
    puts = load(a, size, 8)
    sim.partition(["a.eth1"], ["b.eth1"])  # what is on the rail never arrives
    sim.run(0.01)
    sim.link_down("a.eth1")
    sim.run(5)
    assert not any(put.ok for put in puts)
    a.loop.enter(bond.switch, 0, True)
    sim.run_until(lambda: all(put.ok for put in puts), 20)
    once(b, puts)


@pytest.mark.requirement("BOND-ni")
@pytest.mark.parametrize("kind", ["drop", "delay"])
def test_a_fault_rule_counts_a_bonded_message_once(kind: str) -> None:
    sim = Simulation(seed=kind)
    a, _ = pair(sim)
    put = 1 << int(MsgType.PUT)
    more = {"health": 1 << int(HealthStatus.LOCAL_DROPPED)} if kind == "drop" else {"latency": 1.0}
    fault = Fault(
        FaultKind(kind),
        ANY_NID,
        Nid.parse(B_BOND),
        messages=put,
        rate=10,
        **more,
    )
    rule = a.loop.enter(a.core.faults.add, fault)
    puts = load(a, 500, 20)
    sim.run(5)
    assert all(put.ok for put in puts)
    resends = a.core.stats.resend_count
    assert rule.count == 20 + resends
    assert rule.struck >= 2


@pytest.mark.requirement("BOND-hello")
def test_a_copy_ends_with_the_hello_of_a_peer_that_was_away_for_long() -> None:
    """What waited for that had failed, and the peer was forgotten with the names of its PUTs."""
    sim = Simulation(seed=2)
    a = bonded(sim, "a", A[0], "10.0.1.1@tcp")
    b = ScriptedBond(sim, "b", B[0])  # acknowledges no data

    def hello(number: int, tag: bytes) -> None:
        told = BondHello(number, 0, b.configuration(Mode.STANDBY), (7,), guard=tag)
        b.say(Nid.parse(A[0]), Kind.HELLO, told.pack())

    hello(9, b"\x12\x34")
    sim.run(0.05)
    put = a.put(b.bond, 30, data=b"x")
    sim.run(0.05)
    sim.link_down("a.eth0")
    sim.run(0.5)
    sim.link_up("a.eth0")
    assert [one.hdr.wmd[15] for one in b.data] == [FIRST, AGAIN]
    peer = bond_of(a).peers[b.bond]
    b.answers_beacons = False
    sim.run_until(lambda: not peer.connected, 30)
    waits = a.put(b.bond, 30, data=b"y")
    sim.run_until(lambda: waits.ended, 30)
    sim.run(1)
    assert not put.ended
    b.answers_beacons = True
    hello(70_000, b"\x56\x78")
    sim.run(0.1)
    assert put.status == -errno.ECONNRESET, put.reason


def make_anew(node: SimNode, nids: tuple[str, ...]) -> None:
    """Its bonding NI is there again, with another incarnation."""
    assert not node.configure(bond_yaml(*nids))


@pytest.mark.parametrize("gap", [0.05, 1, 5, 20])
@pytest.mark.parametrize("size", [500, 100_000])
def test_what_a_peer_dropped_while_its_bonding_ni_was_made_anew_is_sent_again(size: int, gap: float) -> None:
    """Its life, and its connections, are the same: PUTs waited for their time-outs."""
    sim = Simulation(seed=3)
    a, b = pair(sim)
    b.del_ni(B_BOND)
    puts = load(a, size, 3)
    sim.run(gap)
    assert not any(put.ok for put in puts)
    make_anew(b, B)
    if gap > 10:  # the peer counts as gone, and nobody asks after it until somebody sends to it
        puts += load(a, size, 1)
    sim.run_until(lambda: all(put.ended for put in puts), 10)
    once(b, puts)
    sim.run_until_quiet()


@pytest.mark.parametrize("gap", [0.05, 1])
@pytest.mark.parametrize("kind", ["small", "large", "get"])
def test_what_is_under_way_when_a_bonding_ni_is_deleted_ends_at_once(kind: str, gap: float) -> None:
    """What was still on a slave waited for its time-out: its answer went to an NI that was gone."""
    sim = Simulation(seed=3)
    a, b = pair(sim)
    sizes = {"small": 500, "large": 100_000}
    request = a.put(B_BOND, 30, data=bytes(sizes[kind])) if kind in sizes else a.get(B_BOND, 30, size=10)
    sim.run(2e-5)
    a.del_ni("10.0.0.1@bond0")
    sim.run(gap)
    make_anew(a, A)
    assert request.ended and request.status == -errno.ENETDOWN
    after = load(a, count=3)
    sim.run_until_quiet()
    once(b, after)


@pytest.mark.parametrize("seed", [14, 15, 16])
def test_puts_end_soon_whatever_happens_while_a_bonding_ni_is_made_anew(seed: int) -> None:
    """Those that were on their way over a path that was down, when the peer was lost, waited for 150 s."""
    rng = Random(seed)
    link = LinkParams(rate=rng.choice([1e7, 1e8, 1e9]), delay=rng.choice([1e-5, 1e-3, 2e-2]))
    sim = Simulation(seed=seed, link=link)
    a, b = pair(sim, mode=rng.choice(["standby", "loadbalance"]))
    puts, there = [], True
    for _ in range(6):
        for _ in range(4):
            puts += load(a, rng.choice([10, 500, 100_000]), rng.randrange(1, 5))
            sim.run(rng.choice([1e-4, 1e-3, 0.02, 0.5]) * rng.random())
        what = rng.randrange(8)
        if what < 3:
            if there:
                b.del_ni(B_BOND)
            else:
                make_anew(b, B)
            there = not there
        elif what == 3:
            sim.partition([f"a.eth{rng.randrange(2)}"], [f"b.eth{rng.randrange(2)}"], both=rng.random() < 0.5)
        elif what == 4:
            sim.heal()
        elif what == 5:
            sim.link_down(f"{rng.choice('ab')}.eth{rng.randrange(2)}")
        elif what == 6:
            links_up(sim)
        sim.run(rng.choice([0, 0.01, 0.3, 2]) * rng.random())
    sim.heal()
    links_up(sim)
    if not there:
        make_anew(b, B)
    sim.run_until(lambda: all(put.ended for put in puts), 60, must=False)
    assert [put for put in puts if not put.ended] == []
    assert sim.ledger.duplicates == 0


def links_up(sim: Simulation) -> None:
    for name in ("a.eth0", "a.eth1", "b.eth0", "b.eth1"):
        sim.link_up(name)


@pytest.mark.pure  # it counts calls
def test_a_hello_of_another_life_lets_what_waits_on_a_path_stay_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of it set out anew in one turn: 8,000 took 0.2 to 0.7 s, at each HELLO of whoever says many."""
    sim = Simulation(seed=7, link=LinkParams(rate=2e5))
    a, m = bonded(sim, "a", *A), ScriptedBond(sim, "m", "10.0.0.66@tcp")
    home, bond = Nid.parse(A[0]), bond_of(a)

    def hello() -> None:
        m.incarnation += 1 << 24
        said = BondHello(m.incarnation, bond.incarnation, m.configuration(), (7,), guard=b"\1\2")
        m.say(home, Kind.HELLO, said.pack())

    hello()
    sim.run(0.5)
    hello()
    sim.run(0.5)
    puts = [a.put(m.bond, 30, data=bytes(4096)) for _ in range(200)]
    sim.run(1)
    pni = a.core.peers.find_ni(m.nid)
    assert pni is not None and len(pni.tx_queue) > 100
    left = []
    monkeypatch.setattr(Credits, "leave", lambda credits, ni, pni: left.append(pni))
    for _ in range(3):
        hello()
        sim.run(0.3)
    assert bond.peers[m.bond].incarnation == m.incarnation
    assert not left
    assert not all(put.ended for put in puts)

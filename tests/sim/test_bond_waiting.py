"""What waits for a bonding peer's HELLO: answers have a bound; all of it goes, or fails, a few in a turn."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from support.bonded import ScriptedBond, bond_of, bonded
from ulnet.bond.bondni import BondNi
from ulnet.bond.peer import BondPeer
from ulnet.core import receiver
from ulnet.nid import LNET_PID, Nid
from ulnet.sim import LinkParams, Simulation
from ulnet.sim.foreign import Heard
from ulnet.sim.node import SimNode
from ulnet.sim.traffic import Operation
from ulnet.wire.bond import Kind, kind_of
from ulnet.wire.lnet import PING_PORTAL, Header, MsgType

A = ("10.0.0.1@tcp", "10.1.0.1@tcp1")
B = ("10.0.0.2@tcp", "10.1.0.2@tcp1")
B_BOND = Nid.parse("10.0.0.2@bond0")
HOME = Nid.parse(A[0])
AT_ONCE = 64
MOST = 100


@pytest.mark.pure
@pytest.mark.parametrize("kind", [MsgType.GET, MsgType.PUT])
def test_answers_that_wait_for_a_hello_have_the_bound_of_others(
    kind: MsgType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are counted at the bonding NID, and what asked for them came from a slave."""
    monkeypatch.setattr(receiver, "MAX_PEER_ANSWERS", MOST)
    sim = Simulation(seed=1)
    a = bonded(sim, "a", *A)
    a.attach(31)
    m = ScriptedBond(sim, "m", "10.0.0.66@tcp")
    bond = bond_of(a)
    for _ in range(3 * MOST):
        hdr = Header(int(kind), bond.ni.nid, m.bond, LNET_PID, LNET_PID, wmd=b"1" * 16, portal=31)
        if kind is MsgType.GET:
            hdr.portal, hdr.match_bits, hdr.length = PING_PORTAL, 1 << 63, 4096
        m.node.send(m.nid, HOME, hdr)
    sim.run(1)
    waiting = bond.peers[m.bond].waiting
    assert len(waiting) == a.core.state.answers == MOST
    assert a.core.stats.drops["too many answers wait for this peer"] == 2 * MOST
    sim.run(30)
    assert not waiting
    assert a.core.state.answers == 0


def ended(puts: list[Operation]) -> int:
    return sum(put.ended for put in puts)


def first_of(sim: Simulation, puts: list[Operation]) -> int:
    """How many of them end in the turn in which the first one does."""
    sim.run_until(lambda: ended(puts) > 0, 30)
    return ended(puts)


def test_what_waits_in_vain_fails_a_few_in_a_turn() -> None:
    """Ending 374,884 of them at once took 2.4 seconds, in which a node did nothing else."""
    sim = Simulation(seed=1)
    a = bonded(sim, "a", *A)
    puts = [a.put(B_BOND, 30, data=b"x") for _ in range(300)]
    assert first_of(sim, puts) <= AT_ONCE
    more = a.put(B_BOND, 30, data=b"x")  # which has its own time
    sim.run(1)
    assert {put.status for put in puts} == {-errno.EHOSTUNREACH}
    assert not more.ended
    b = bonded(sim, "b", *B)
    b.attach(30)
    sim.run_until(lambda: more.ended, 20)
    assert more.ok


def with_a_crowd(waiting: int = 300) -> tuple[Simulation, SimNode, SimNode, list[Operation]]:
    """a's first messages wait for b, which is there now."""
    sim = Simulation(seed=1)
    a, b = bonded(sim, "a", *A), bonded(sim, "b", *B)
    b.attach(30)
    puts = [a.put(B_BOND, 30, data=b"x") for _ in range(waiting)]
    sent = bond_of(a).ni.stats.sent
    sim.run_until(lambda: sent[MsgType.PUT] > 0, 10)
    return sim, a, b, puts


@pytest.mark.requirement("BOND-hello")
def test_what_waited_for_a_hello_leaves_a_few_in_a_turn_and_is_not_overtaken() -> None:
    sim, a, b, puts = with_a_crowd()
    assert bond_of(a).ni.stats.sent[MsgType.PUT] <= AT_ONCE
    for _ in range(10):
        puts += [a.put(B_BOND, 30, data=b"y") for _ in range(20)]
        sim.run(1e-5)
    sim.run_until(lambda: all(put.ended for put in puts), 10)
    assert [one.number for one in b.inboxes[0].deliveries] == [put.number for put in puts]
    assert all(put.ok for put in puts)


@pytest.mark.requirement("BOND-hello")
def test_what_waits_when_the_peer_is_lost_waits_for_its_next_hello() -> None:
    sim, a, b, puts = with_a_crowd()
    bond, peer = bond_of(a), bond_of(a).peers[B_BOND]

    def lose() -> None:
        for path in peer.paths:
            bond.suspect(peer, path)

    a.loop.enter(lose)
    sim.run_until(lambda: all(put.ended for put in puts), 20)
    assert [(put.status, put.reason) for put in puts if not put.ok] == []
    assert [b.inboxes[0].times[put.number] for put in puts] == [1] * len(puts)


def waiting_for_a_restarted_peer(
    count: int, slaves: int, mode: str = "standby"
) -> tuple[Simulation, SimNode, BondPeer, list[Operation]]:
    """So many messages of a node wait until b, which is there again, says which slaves it knows."""
    sim = Simulation(seed=3, link=LinkParams(delay=0.02))
    a, b = bonded(sim, "a", *A[:slaves], mode=mode), bonded(sim, "b", *B[:slaves], mode=mode)
    b.attach(30)
    for _ in range(4):
        a.put(B_BOND, 30, data=b"x")
        sim.run(1)
    peer = bond_of(a).peers[B_BOND]
    b.kill(silent=True)
    sim.run(0.5)
    b.restart()
    sim.run_until(lambda: peer.settling and peer.connected, 20)
    puts = [a.put(B_BOND, 30, data=b"x") for _ in range(count)]
    sim.run(0.001)
    assert len(peer.waiting) == len(puts)
    return sim, b, peer, puts


@pytest.mark.requirement("BOND-hello")
@pytest.mark.parametrize("slaves", [1, 2])
def test_what_waits_when_a_hello_fails_on_the_last_path_waits_for_the_next_one(slaves: int) -> None:
    """All of it failed at once: the end of the failed HELLO was taken for that of a good one."""
    sim, b, peer, puts = waiting_for_a_restarted_peer(100, slaves)
    b.kill(silent=True)
    sim.run_until(lambda: not peer.connected, 20)
    sim.run(1)
    assert ended(puts) == 0
    b.restart()
    sim.run_until(lambda: ended(puts) == len(puts), 20)
    assert [put.reason for put in puts if not put.ok] == []


def test_a_bonding_ni_that_is_shut_down_ends_all_that_waits() -> None:
    sim, a, _, puts = with_a_crowd()
    waiting = [msg.md for msg in bond_of(a).in_hand]
    assert len(waiting) > 100
    a.del_ni(bond_of(a).ni.nid)
    sim.run(0.01)
    assert all(put.ended for put in puts if put.md in waiting)
    sim.run_until_quiet()


def test_who_has_ever_more_waiting_leaves_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who had no turn was put behind the one that had it, which was first again the next time."""
    sim = Simulation(seed=1)
    a, b, c = bonded(sim, "a", *A), bonded(sim, "b", *B), bonded(sim, "c", "10.0.0.3@tcp", "10.1.0.3@tcp1")
    for node in (b, c):
        node.attach(30)
    turns: list[Callable[[], None]] = []
    soon = BondNi.soon

    def later(bond: BondNi, call: Callable[[], None]) -> None:
        if bond is bond_of(a) and getattr(call, "__name__", "") == "_let_some_go":
            turns.append(call)
        else:
            soon(bond, call)

    monkeypatch.setattr(BondNi, "soon", later)
    for _ in range(3 * AT_ONCE):
        a.put(B_BOND, 30, data=b"x")
    sim.run(5)
    last, peers = a.put(Nid.parse("10.0.0.3@bond0"), 30, data=b"x"), bond_of(a).peers
    sim.run(5)
    assert not last.ended
    for _ in range(3):
        assert len(turns) == 1
        for _ in range(AT_ONCE):
            a.put(B_BOND, 30, data=b"x")
        a.loop.enter(turns.pop())
    sim.run(1)
    assert last.ok
    assert peers[B_BOND].waiting


class Deaf(ScriptedBond):
    """Says HELLO whenever it hears one, and acknowledges none until it is told to."""

    listens = False

    def _take(self, heard: Heard) -> None:
        hello = kind_of(heard.hdr) is Kind.HELLO
        if self.listens or not hello:
            super()._take(heard)
            if hello and not self.hellos[-1].target:
                self.hello(heard.hdr.src_nid, self.hellos[-1].source)
        else:
            self.hello(heard.hdr.src_nid, 0)


@pytest.mark.requirement("BOND-hello")
@pytest.mark.parametrize("listens_after", [None, 6.0])
@pytest.mark.parametrize("mode", ["standby", "loadbalance"])
def test_what_waits_for_a_peer_that_takes_no_hello_does_not_wait_for_ever(
    mode: str, listens_after: float | None
) -> None:
    """Each HELLO of the peer was a connection, with which the time for the next one began anew."""
    sim = Simulation(seed=7)
    a = bonded(sim, "a", *A, mode=mode)
    m = Deaf(sim, "m", "10.0.0.66@tcp")
    bond = bond_of(a)
    m.hello(HOME, 0)
    sim.run(0.1)
    puts = [a.put(m.bond, 30, data=b"x", ack=False) for _ in range(3)]
    get = a.get(m.bond, 30, size=10)
    for _ in range(2):  # what comes later has a time of its own
        peer = bond.peers[m.bond]
        sim.run(listens_after or 5)
        assert not ended([*puts, get])
        m.listens = listens_after is not None
        sim.run(12)
        assert not peer.waiting
        if m.listens:
            assert [put.ok for put in puts] == [True] * 3 and len(m.data) == 4
            return
        assert {(one.status, "takes none" in one.reason) for one in (*puts, get)} == {
            (-errno.EHOSTUNREACH, True)
        }
        sim.run(60)
        puts = [a.put(m.bond, 30, data=b"x", ack=False)]
        get = a.get(m.bond, 30, size=10)


@pytest.mark.parametrize("back", [8, 12])
def test_messages_go_when_a_peer_takes_a_hello_again_that_was_silent_meanwhile(back: int) -> None:
    """All failed that waited for it, also those sent just before; and then those behind the first 64."""
    sim = Simulation(seed=1, link=LinkParams(rate=1e8, delay=1e-3))
    a, b = bonded(sim, "n1", *A, mode="loadbalance"), bonded(sim, "n2", *B, mode="loadbalance")
    target = B_BOND
    for node in (a, b):
        node.attach(31)
    for _ in range(4):
        a.put(target, 31, data=b"x")
        sim.run(0.1)
    b.kill()
    sim.run(0.05)
    b.restart()
    b.attach(31)
    peer = next(iter(bond_of(a).peers.values()))
    puts = [a.put(target, 31, data=b"first")]
    sim.run_until(lambda: bool(peer.waiting) and peer.connected, 15)
    cut = sim.partition(["n1.eth0", "n1.eth1"], ["n2.eth0", "n2.eth1"])
    for _ in range(2 * back):
        sim.run(0.5)
        puts += [a.put(target, 31, data=b"meanwhile") for _ in range(10)]  # more than go in a turn
    sim.heal(cut)
    puts += [a.put(target, 31, data=b"just now") for _ in range(10)]
    sim.run_until(lambda: all(put.ended for put in puts), 60, must=False)
    assert [put for put in puts if not put.ok] == []


@pytest.mark.requirement("BOND-hello")
@pytest.mark.parametrize("mode", ["standby", "loadbalance"])
def test_what_waited_for_the_credits_of_a_slave_has_its_whole_time_for_the_peer(mode: str) -> None:
    """80 of 87 failed with the first HELLO that was not taken: the wait for credits counted, too."""
    sim = Simulation(seed=1, link=LinkParams(rate=1e5, delay=1e-3))
    a, b = bonded(sim, "a", *A, mode=mode), bonded(sim, "b", *B, mode=mode)
    b.attach(31)
    a.put(B_BOND, 31, data=b"x")
    sim.run(1)
    puts = [a.put(B_BOND, 31, data=bytes(50_000), ack=False) for _ in range(200)]
    sim.run(14)
    b.kill()
    sim.run(0.05)
    b.restart()
    b.attach(31)
    bond, peer = bond_of(a), bond_of(a).peers[B_BOND]
    sim.run_until(lambda: len(peer.waiting) > 20 and peer.connected, 15)
    waited = [a.core.state.clock() - msg.queued_at for msg in bond.in_hand]
    assert sum(seconds > 10 for seconds in waited) > 20
    a.loop.enter(bond.hello_ended, peer, False)
    sim.run(120)
    assert [put.reason for put in puts if "takes none" in put.reason] == []
    assert sum(put.ok for put in puts) >= len(waited)


@pytest.mark.requirement("BOND-hello")
@pytest.mark.parametrize("seconds", [2.5, 4])
@pytest.mark.parametrize("mode", ["standby", "loadbalance"])
def test_a_hello_that_fails_does_not_change_the_order_of_what_waits(mode: str, seconds: float) -> None:
    """What waited was looked at twice for it, and so the first 64 were put behind the others."""
    sim, b, _, puts = waiting_for_a_restarted_peer(300, 1, mode)
    cut = sim.partition(["a.eth0"], ["b.eth0"])
    sim.run(seconds)
    sim.heal(cut)
    sim.run_until(lambda: all(put.ended for put in puts), 60)
    arrived = [one.number for one in b.inboxes[-1].deliveries if one.number >= puts[0].number]
    assert len(arrived) == len(puts)
    assert arrived == sorted(arrived)

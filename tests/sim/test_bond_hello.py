"""Every case of an incoming HELLO (bonding design §7.1): a real bonding NI and a scripted one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.bonded import ScriptedBond, bond_of, bonded, foreign_put
from support.examples import examples
from ulnet.bond.hello import PeerState
from ulnet.bond.peer import BondPeer
from ulnet.nid import LNET_PID, Nid
from ulnet.sim import Simulation
from ulnet.sim.node import SimNode
from ulnet.wire.bond import (
    MATCH_BITS,
    Answer,
    BondHello,
    Configuration,
    Kind,
    Mode,
    Register,
    Resolve,
    SlaveEntry,
)
from ulnet.wire.lnet import Header, MsgType
from wire.wire_strategies import byteorders

A = Nid.parse("10.0.0.1@tcp")
OTHER = 77  # an incarnation that the node never had


class Pair:
    """Node a, whose bonding NI is real, and b, which is scripted."""

    def __init__(self, **options: object) -> None:
        self.sim = Simulation(seed=1)
        self.a: SimNode = bonded(self.sim, "a", str(A), "10.1.0.1@tcp1", **options)
        self.b = ScriptedBond(self.sim, "b", "10.0.0.2@tcp")
        self.bond = bond_of(self.a)

    @property
    def peer(self) -> BondPeer | None:
        """What a knows of b."""
        return self.bond.peers.get(self.b.bond)

    def wait(self) -> Pair:
        """Let the first handshake begin: a has said HELLO, and has none."""
        self.put = self.a.put(self.b.bond, 30, data=b"x", ack=False)
        self.sim.run_until(lambda: bool(self.b.hellos))
        self.sim.run(0.01)
        assert self.peer is not None
        assert self.peer.state is PeerState.WAITING
        return self

    def connect(self) -> Pair:
        """Finish it."""
        self.wait()
        self.b.hello(A, self.bond.incarnation)
        self.settle()
        assert self.peer is not None
        assert self.peer.connected
        self.b.hellos.clear()
        return self

    def settle(self) -> Pair:
        """Let what was sent arrive."""
        self.sim.run(0.05)
        return self

    def kept(self) -> bool:
        """Whether a has what b said last."""
        return self.peer is not None and self.peer.connected and self.peer.incarnation == self.b.incarnation


# From an unknown peer ------------------------------------------------------------------------------------


@pytest.mark.requirement("BOND-hello")
def test_unknown_peer_and_zero_is_an_initial_handshake() -> None:
    pair = Pair()
    pair.b.hello(A, 0)
    pair.settle()
    assert pair.kept()
    (answer,) = pair.b.hellos
    assert (answer.source, answer.target) == (pair.bond.incarnation, pair.b.incarnation)
    assert [one.nid for one in answer.configuration.slaves] == [A, Nid.parse("10.1.0.1@tcp1")]


@pytest.mark.requirement("BOND-hello")
def test_unknown_peer_and_another_stamp_is_one_that_knew_an_earlier_life() -> None:
    pair = Pair()
    pair.b.hello(A, OTHER)
    pair.settle()
    assert pair.kept()
    assert len(pair.b.hellos) == 1  # which brings its copy up to date


@pytest.mark.requirement("BOND-hello")
def test_unknown_peer_and_the_current_stamp_is_answered_too() -> None:
    pair = Pair()
    pair.b.hello(A, pair.bond.incarnation)
    pair.settle()
    assert pair.kept()
    assert len(pair.b.hellos) == 1


# From a known peer, not connected ------------------------------------------------------------------------


@pytest.mark.requirement("BOND-hello")
def test_waiting_and_the_current_stamp_is_the_answer() -> None:
    pair = Pair().wait()
    pair.b.hellos.clear()
    pair.b.hello(A, pair.bond.incarnation)
    pair.settle()
    assert pair.kept()
    assert not pair.b.hellos
    assert len(pair.b.data) == 1  # what had waited


@pytest.mark.requirement("BOND-hello")
def test_waiting_and_zero_is_a_race_of_both() -> None:
    pair = Pair().wait()
    pair.b.hellos.clear()
    pair.b.hello(A, 0)
    pair.settle()
    assert pair.kept()
    assert not pair.b.hellos  # ours is on its way already


@pytest.mark.requirement("BOND-hello")
def test_waiting_and_another_stamp_is_an_update_for_an_earlier_life() -> None:
    pair = Pair().wait()
    pair.b.hellos.clear()
    pair.b.hello(A, OTHER)
    pair.settle()
    assert pair.kept()
    assert not pair.b.hellos


# From a known peer, connected ----------------------------------------------------------------------------


@pytest.mark.requirement("BOND-hello")
def test_connected_and_zero_is_a_peer_that_restarted() -> None:
    pair = Pair().connect()
    pair.b.incarnation = 5  # a new life: random, here lower
    pair.b.hello(A, 0)
    pair.settle()
    assert pair.kept()
    (answer,) = pair.b.hellos
    assert answer.target == pair.b.incarnation


@pytest.mark.requirement("BOND-hello")
def test_connected_and_the_current_stamp_is_a_change() -> None:
    pair = Pair().connect()
    pair.b.hello(A, pair.bond.incarnation, pair.b.configuration(Mode.LOADBALANCE))
    pair.settle()
    assert pair.kept()
    assert pair.peer is not None
    assert pair.peer.configuration == pair.b.configuration(Mode.LOADBALANCE)
    assert not pair.b.hellos


@pytest.mark.requirement("BOND-hello")
def test_connected_and_another_stamp_is_a_peer_with_stale_data() -> None:
    pair = Pair().connect()
    pair.b.hello(A, OTHER)
    pair.settle()
    assert pair.kept()
    (answer,) = pair.b.hellos
    assert answer.source == pair.bond.incarnation


# Beyond the document -------------------------------------------------------------------------------------


def test_a_hello_that_was_overtaken_changes_nothing() -> None:
    pair = Pair().connect()
    pair.b.hello(A, pair.bond.incarnation, pair.b.configuration(Mode.LOADBALANCE))
    pair.settle()
    late = BondHello(pair.b.incarnation - 1, pair.bond.incarnation, pair.b.configuration(), (3,))
    pair.b.say(A, Kind.HELLO, late.pack())
    pair.settle()
    assert pair.kept()
    assert pair.a.core.stats.drops["bonding HELLO that was overtaken"] == 1


def test_versions_and_capabilities_are_the_lower_ones() -> None:
    pair = Pair()
    told = BondHello(9, 0, pair.b.configuration(), (0x2, 0xFFFF, 0xFFFF))
    pair.b.say(A, Kind.HELLO, told.pack())
    pair.settle()
    assert pair.peer is not None
    assert (pair.peer.version, pair.peer.capabilities) == (1, 0x2)


@pytest.mark.requirement("BOND-hello")
def test_no_data_before_both_have_said_hello() -> None:
    pair = Pair().wait()
    pair.sim.run(5)
    assert not pair.b.data
    assert not pair.put.ended
    pair.sim.run_until_quiet()
    assert pair.put.status is not None
    assert "no bonding data server knows it, and its first slave says no HELLO" in pair.put.reason
    assert not pair.bond.peers


@pytest.mark.requirement("BOND-ni")
def test_first_slaves_on_different_nets_are_refused_with_the_reason() -> None:
    pair = Pair()
    wrong = Nid.parse("10.0.0.2@tcp1")
    slaves = (SlaveEntry(wrong), SlaveEntry(pair.b.nid))
    pair.b.hello(A, 0, Configuration(pair.b.bond, slaves))
    pair.settle()
    assert not pair.bond.peers
    assert not pair.b.hellos
    told = [line for line in pair.a.reports if "all of one bonding net must have it on the same net" in line]
    assert told == [
        "10.0.0.2@bond has its first slave on tcp1, 10.0.0.1@bond on tcp: "
        "all of one bonding net must have it on the same net"
    ]


def test_what_is_no_hello_or_not_its_own_is_dropped_and_counted() -> None:
    pair = Pair()
    stranger = Nid.parse("10.0.0.9@tcp")
    pair.b.hello(A, 0, Configuration(Nid.of(pair.b.bond.net, stranger.address), (SlaveEntry(stranger),)))
    pair.b.say(A, Kind.HELLO, b"no HELLO at all")
    pair.b.say(A, Kind.ANSWER, b"")
    pair.settle()
    drops = pair.a.core.stats.drops
    assert drops["bonding HELLO from somebody else"] == 1
    assert drops["bonding message that breaks the rules"] == 2
    assert not pair.bond.peers


@pytest.mark.requirement("BOND-hello")
def test_standby_tells_peers_of_a_change_at_once() -> None:
    pair = Pair(mode="standby").connect()
    pair.sim.link_down("a.eth1")
    pair.settle()
    (update,) = pair.b.hellos
    assert [one.status for one in update.configuration.slaves] == [1, 2]
    assert update.source == pair.bond.incarnation


@pytest.mark.requirement("BOND-hello")
def test_load_balancing_tells_peers_when_they_are_next_in_touch() -> None:
    pair = Pair(mode="loadbalance").connect()
    pair.sim.link_down("a.eth1")
    pair.settle()
    assert not pair.b.hellos
    pair.a.attach(30)
    foreign_put(pair.b.node, A, pair.bond.ni.nid, pair.b.bond, 30, 1)
    pair.settle()
    (update,) = pair.b.hellos
    assert [one.status for one in update.configuration.slaves] == [1, 2]


def test_data_from_a_peer_that_this_node_does_not_know_is_taken_and_answered_with_a_handshake() -> None:
    pair = Pair()
    inbox = pair.a.attach(30)
    foreign_put(pair.b.node, A, pair.bond.ni.nid, pair.b.bond, 30, 1)
    pair.settle()
    assert [one.initiator for one in inbox.deliveries] == [pair.b.bond]
    assert pair.b.hellos[0].target == 0


@given(st.data())
@settings(max_examples=examples(60))
def test_hostile_control_messages_change_nothing_and_break_nothing(data: st.DataObject) -> None:
    pair = Pair().connect()
    configuration = pair.b.configuration()
    good: tuple[BondHello | Register | Resolve | Answer, ...] = (
        BondHello(pair.b.incarnation + 1, pair.bond.incarnation, configuration, (3,)),
        Register(1, 5, configuration),
        Resolve(2, pair.bond.ni.nid, pair.b.bond),
        Answer(3, pair.b.bond, 0, 5, configuration),
    )
    for _ in range(data.draw(st.integers(1, 5))):
        message = bytearray(data.draw(st.sampled_from(good)).pack(data.draw(byteorders)))
        at = data.draw(st.integers(0, len(message)))
        message[at : at + 4] = data.draw(st.binary(max_size=8))
        pair.b.say(A, data.draw(st.sampled_from(Kind)), bytes(message))
    pair.settle()
    assert pair.peer is not None
    operation = pair.a.put("10.0.0.2@tcp", 30)  # the node is as well as before
    pair.sim.run_until_quiet()
    assert operation.ended


def test_control_messages_in_another_node_s_name_are_not_taken() -> None:
    pair = Pair()
    third = pair.sim.single_rail("third", "10.0.0.3@tcp")
    question = Resolve(1, pair.bond.ni.nid, Nid.of(pair.b.bond.net, third.nid.address)).pack()
    bits = MATCH_BITS | Kind.RESOLVE
    hdr = Header(int(MsgType.PUT), A, third.nid, LNET_PID, LNET_PID, len(question), match_bits=bits)
    pair.b.node.send(pair.b.nid, A, hdr, question)
    pair.settle()
    assert not [heard for heard in third.heard if heard.hdr.type == MsgType.PUT]

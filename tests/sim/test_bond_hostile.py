"""Bonding NIs among strangers that lie: others' slaves, others' names, floods of names; servers that err."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from support.bonded import BOND, ScriptedBond, bond_of, bonded, foreign_put
from ulnet.bond.hello import PeerState
from ulnet.bond.peer import BondPeer
from ulnet.bond.servers import ServerState
from ulnet.bond.slaves import Slaves
from ulnet.core.md import OP_PUT, TRUNCATE
from ulnet.dlc.model_bond import BondOptions, BondSet
from ulnet.nid import LNET_PID, Nid
from ulnet.sim import Simulation
from ulnet.sim.foreign import Heard
from ulnet.sim.node import SimNode
from ulnet.wire.bond import (
    Answer,
    BondHello,
    Configuration,
    Kind,
    Mode,
    Register,
    Resolve,
    SlaveEntry,
    kind_of,
)
from ulnet.wire.errors import WireError
from ulnet.wire.lnet import Header, MsgType

A = ("10.0.0.1@tcp", "10.1.0.1@tcp1")
B = ("10.0.0.2@tcp", "10.1.0.2@tcp1")
B_BOND = Nid.parse("10.0.0.2@bond0")
HOME = Nid.parse(A[0])


class World:
    """a and b are honest and connected, m is not honest."""

    def __init__(self, seed: object = 1, **options: object) -> None:
        self.sim = Simulation(seed=str(seed))
        self.a: SimNode = bonded(self.sim, "a", *A, **options)
        self.b: SimNode = bonded(self.sim, "b", *B, **options)
        self.b.attach(30)
        self.m = ScriptedBond(self.sim, "m", "10.0.0.66@tcp")
        self.bond = bond_of(self.a)
        self.gets_through()

    def gets_through(self) -> None:
        put = self.a.put(B_BOND, 30, data=b"x")
        self.sim.run_until(lambda: put.ended, 60)
        assert put.ok, put.reason

    def say(
        self, *slaves: str | Nid, nid: Nid | None = None, target: int = 0, mode: Mode = Mode.STANDBY
    ) -> None:
        entries = tuple(SlaveEntry(Nid.parse(one) if isinstance(one, str) else one) for one in slaves)
        configuration = Configuration(nid or Nid.of(BOND, entries[0].nid.address), entries, mode)
        self.m.hello(HOME, target, configuration)
        self.sim.run(0.05)

    def sane(self) -> None:
        """No handler failed, and tables agree."""
        assert [line for line in self.a.reports if "failed on" in line] == []
        bond = self.bond
        for nid, peer in bond.peers.items():
            assert peer.nid == nid
            for path in peer.paths:
                assert path.nid not in self.a.core.nis
                assert bond.path(nid, path.ni, path.nid) == (peer, path)


@pytest.mark.requirement("BOND-hello")
def test_a_peer_that_names_slaves_of_another_does_not_get_its_paths() -> None:
    world = World()
    world.say(world.m.nid, *B)
    assert world.m.bond in world.bond.peers
    b = world.bond.peers[B_BOND]
    for path in b.paths:
        assert world.bond.path(B_BOND, path.ni, path.nid) == (b, path)
    world.sim.partition(["a.eth0"], ["b.eth0"])
    put = world.a.put(B_BOND, 30, data=bytes(10_000))
    world.sim.run_until(lambda: "ACK" in put.events, 10)  # over b's other slave
    assert [path.works for path in b.paths] == [False, True]
    world.sane()


@pytest.mark.requirement("BOND-hello")
def test_a_known_peer_is_not_given_other_slaves_by_a_stranger() -> None:
    world = World()
    world.say(B[0], world.m.nid)  # under b's own NID
    peer = world.bond.peers[B_BOND]
    assert peer.configuration == bond_of(world.b).slaves.own
    assert world.a.core.stats.drops["bonding HELLO from a slave that is not known yet"] == 1
    world.gets_through()
    world.sane()


@pytest.mark.requirement("BOND-config", "BOND-hello")
def test_a_new_slave_s_hello_is_believed_once_a_known_one_confirms_it() -> None:
    world = World(mode="loadbalance")
    world.b.add_ni("10.0.1.2@tcp")
    world.b.request(BondSet(str(B_BOND), [*B, "10.0.1.2@tcp"], BondOptions()))
    own = bond_of(world.b)
    new = next(ni for ni in own.slaves.nis if ni.nid == Nid.parse("10.0.1.2@tcp"))
    own.handshake.send_hello_over(own.peers[world.bond.ni.nid], (new, HOME))
    world.sim.run(1)
    peer = world.bond.peers[B_BOND]
    assert peer.configuration == own.slaves.own
    world.sane()


@pytest.mark.requirement("BOND-hello")
def test_one_stranger_cannot_be_many_peers() -> None:
    world = World()
    for number in range(50):
        world.say(f"10.0.7.{number}@tcp", world.m.nid)
    assert len(world.bond.peers) <= 2
    world.gets_through()
    world.sane()


@pytest.mark.pure
def test_a_certificate_is_for_the_bonding_nid_too() -> None:
    """Any neighbour with a certificate of its own was any bonding peer that was not connected yet."""
    world = World()
    core, liar, victim = world.a.core, world.m.nid, Nid.parse("10.0.7.9@bond0")
    plain, certified = core.receiver, {liar}
    core.receiver = lambda ni, nid, vouches=None: plain(  # type: ignore[method-assign]
        ni, nid, certified.__contains__ if nid == liar else None
    )
    world.say("10.0.7.9@tcp", liar, nid=victim)
    assert victim not in world.bond.peers
    assert core.stats.drops["bonding HELLO that its sender's certificate is not for"] == 1
    certified.add(victim)
    world.say("10.0.7.9@tcp", liar, nid=victim)
    assert victim in world.bond.peers
    world.sane()


@pytest.mark.requirement("BOND-hello")
def test_our_own_nids_are_nobody_s_slaves() -> None:
    world = World()
    world.say(world.m.nid, A[1])
    assert world.m.bond not in world.bond.peers
    assert world.a.core.stats.drops["bonding HELLO from somebody else"] == 1
    world.sane()


class NotConnected:
    """a knows nobody, and m says that it is `name`, whose first slave is B[0]."""

    def __init__(self, b: bool, **options: object) -> None:
        self.sim = Simulation(seed=5)
        self.a: SimNode = bonded(self.sim, "a", *A, **options)
        self.b: SimNode | None = self.start_b() if b else None
        self.m = ScriptedBond(self.sim, "m", "10.0.0.66@tcp")
        self.bond = bond_of(self.a)
        self.sim.run(0.1)

    def start_b(self) -> SimNode:
        b = bonded(self.sim, "b", *B)
        b.attach(30)
        return b

    def lie(self) -> None:
        slaves = (SlaveEntry(Nid.parse(B[0]), status=2), SlaveEntry(self.m.nid))
        self.m.hello(HOME, 0, Configuration(B_BOND, slaves, active=1))


@pytest.mark.requirement("BOND-hello")
def test_a_peer_that_is_not_connected_is_asked_before_another_one_is_taken_for_it() -> None:
    world = NotConnected(b=True)
    world.lie()
    world.sim.run(3)
    puts = [world.a.put(B_BOND, 30, data=b"x") for _ in range(8)]
    world.sim.run_until(lambda: all(put.ended for put in puts), 60)
    assert all(put.ok for put in puts)
    assert world.b is not None
    assert world.bond.peers[B_BOND].configuration == bond_of(world.b).slaves.own
    assert not any(heard.hdr.portal == 30 for heard in world.m.node.heard)


@pytest.mark.requirement("BOND-hello")
def test_a_slave_speaks_for_its_peer_where_the_first_one_is_not_there() -> None:
    world = NotConnected(b=False)
    world.lie()
    world.sim.run(1)
    assert B_BOND not in world.bond.peers
    world.sim.run(2)
    assert world.bond.peers[B_BOND].has_slave(world.m.nid)
    b = world.start_b()
    world.a.attach(30)
    world.sim.run(3)
    put = b.put(world.bond.ni.nid, 30, data=b"x")
    world.sim.run_until(lambda: put.ended, 60)
    assert world.bond.peers[B_BOND].configuration == bond_of(b).slaves.own


@pytest.mark.requirement("BOND-hello")
def test_nobody_is_believed_whose_first_slave_knows_no_bonding_ni() -> None:
    world = NotConnected(b=False)
    old = world.sim.single_rail("old", B[0])
    world.lie()
    world.sim.run(1)
    assert B_BOND not in world.bond.peers
    assert not any(heard.hdr.type == MsgType.PUT for heard in old.heard)


@pytest.mark.requirement("BOND-hello")
def test_questions_about_claims_are_few() -> None:
    """A stranger has one other NID asked at a time, whatever it says."""
    world = NotConnected(b=False)
    asked = [world.sim.single_rail(f"asked{number}", f"10.0.7.{number}@tcp") for number in range(1, 20)]
    for number in range(1, 20):
        first = Nid.parse(f"10.0.7.{number}@tcp")
        claimed = Configuration(Nid.of(BOND, first.address), (SlaveEntry(first), SlaveEntry(world.m.nid)))
        world.m.hello(HOME, 0, claimed)
    world.sim.run(0.05)
    assert sum(bool(one.heard) for one in asked) == 1
    world.sim.run(5)
    assert len(world.bond.peers) <= 1


@pytest.mark.requirement("BOND-hello")
def test_who_was_refuted_has_nobody_asked_for_a_while() -> None:
    """Each HELLO in a connected peer's name made eight messages."""
    world = World()
    before = world.a.core.stats.send_count
    for _ in range(200):
        world.m.hello(HOME, 0, Configuration(B_BOND, (SlaveEntry(Nid.parse(B[0])), SlaveEntry(world.m.nid))))
        world.sim.run(0.01)
    assert 0 < world.a.core.stats.send_count - before < 20
    world.gets_through()
    world.sane()


@pytest.mark.requirement("BOND-hello")
@pytest.mark.parametrize("b", [True, False])
def test_a_message_in_a_peer_s_name_makes_nobody_that_peer(b: bool) -> None:
    """Its sender answered the BEACON and the HELLO that followed, and was believed."""
    world = NotConnected(b=b)
    took = world.m._take

    def take(heard: Heard) -> None:
        took(heard)
        if kind_of(heard.hdr) is Kind.HELLO:
            world.lie()

    world.m.node.on_message = take
    foreign_put(world.m.node, HOME, world.bond.ni.nid, B_BOND, 30, 1)
    world.sim.run(1)
    peer = world.bond.peers.get(B_BOND)
    assert peer is None or not peer.has_slave(world.m.nid)
    assert world.a.core.stats.drops["another node of that net sent it than its source"] == 1


@pytest.mark.requirement("BOND-hello", "MD")
def test_nobody_sends_for_a_peer_that_fell_silent() -> None:
    """Messages of a peer that is not connected were taken from any neighbour."""
    world = World()
    inbox = world.a.attach(33)
    slaves = [f"{name}.eth{rail}" for name in "ab" for rail in range(2)]
    cut = world.sim.partition(slaves[:2], slaves[2:])
    world.a.put(B_BOND, 30, data=b"x")
    peer = world.bond.peers[B_BOND]
    world.sim.run_until(lambda: not peer.connected, 120)
    foreign_put(world.m.node, HOME, world.bond.ni.nid, B_BOND, 33, 1)
    world.sim.run(1)
    assert not inbox.deliveries
    world.sim.heal(cut)
    put = world.b.put(world.bond.ni.nid, 33, data=b"honest")
    world.sim.run_until(lambda: put.ended, 120)
    assert put.ok, put.reason


@pytest.mark.requirement("BOND-hello")
def test_who_was_believed_while_the_first_slave_was_silent_is_asked_about_again() -> None:
    """Though it tells the incarnation that the peer itself has."""
    world = NotConnected(b=True)
    b = bond_of(world.b)  # type: ignore[arg-type]
    cut = world.sim.partition(["a.eth0", "a.eth1"], ["b.eth0", "b.eth1"])
    world.m.incarnation = b.incarnation - 1
    world.lie()
    world.sim.run(3)
    assert world.bond.peers[B_BOND].has_slave(world.m.nid)
    world.sim.heal(cut)
    world.a.put(B_BOND, 30, data=b"x")
    world.sim.run(60)
    assert world.bond.peers[B_BOND].configuration == b.slaves.own
    assert not world.bond.comes_by(B_BOND, world.m.nid), "nor does it speak for the peer any more"


ANY = (1 << 64) - 1
SOURCES = ["10.0.0.7@tcp", str(B_BOND), "10.0.0.9@bond0", A[1]]


@pytest.mark.requirement("BOND-ni", "MD")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("bonding", [True, False])
def test_a_neighbour_sends_to_a_bonding_ni_in_its_own_name_alone(source: str, bonding: bool) -> None:
    """In that of others of its net, and of bonding peers, it wrote into memory open to these alone."""
    world = World()
    memory = bytearray(8)
    nid, sim = Nid.parse(source), world.sim
    world.a.loop.enter(
        lambda: world.a.node.attach(
            33, 0, memory, ignore_bits=(1 << 64) - 1, nid=nid, options=OP_PUT | TRUNCATE
        )
    )
    target = world.bond.ni.nid if bonding else HOME
    hdr = Header(int(MsgType.PUT), target, nid, LNET_PID, LNET_PID, 8, portal=33)
    world.m.node.send(world.m.nid, HOME, hdr, b"HOSTILE!")
    sim.run(1)
    assert memory == bytes(8)
    if nid == B_BOND:
        put = world.b.put(world.bond.ni.nid, 33, data=b"honest")
        sim.run_until(lambda: put.ended, 60)
        assert bytes(memory[:6]) == b"honest"
    world.gets_through()


# Servers -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("BOND-bds")
def test_who_names_a_server_s_slave_is_no_server_while_that_cannot_be_asked() -> None:
    world = NotConnected(b=False, bds=[B[1]])
    world.sim.link_down("a.eth1")
    world.sim.run(1)
    slaves = tuple(SlaveEntry(nid) for nid in (world.m.nid, Nid.parse(B[1])))
    world.m.hello(HOME, 0, Configuration(world.m.bond, slaves))
    world.sim.run(20)
    kinds = {heard.hdr.match_bits & 0xFF for heard in world.m.node.heard if not heard.hdr.portal}
    assert Kind.HELLO in kinds
    assert Kind.REGISTER not in kinds
    (server,) = world.bond.servers.all.values()
    assert server.state is not ServerState.READY


@pytest.mark.requirement("BOND-bds")
def test_one_stranger_cannot_fill_a_server_nor_take_another_s_name() -> None:
    sim = Simulation(seed=2)
    server = bonded(sim, "s", *A, bds=[A[0]])
    b = bonded(sim, "b", *B, bds=[A[0]])
    m = ScriptedBond(sim, "m", "10.0.0.66@tcp")
    sim.run(2)
    registry = bond_of(server).data.registry
    assert len(registry) == 1
    for number in range(50):
        first = Nid.parse(f"10.0.7.{number}@tcp")
        claimed = Configuration(Nid.of(BOND, first.address), (SlaveEntry(first), SlaveEntry(m.nid)))
        m.hello(HOME, 0, claimed)
        m.say(HOME, Kind.REGISTER, Register(number, 7, claimed).pack())
        sim.run(0.05)
    assert len(registry) <= 2
    stolen = Configuration(B_BOND, (SlaveEntry(Nid.parse(B[0])), SlaveEntry(m.nid)))
    m.hello(HOME, 0, stolen)
    m.say(HOME, Kind.REGISTER, Register(99, 1 << 31, stolen).pack())
    sim.run(0.05)
    assert registry.find(B_BOND) == bond_of(b).slaves.own
    sim.run_until_quiet()


@pytest.mark.requirement("BOND-hello")
def test_messages_that_break_the_rules_do_not_fill_the_log() -> None:
    world = World()
    for _ in range(500):
        world.m.say(HOME, Kind.HELLO, b"no HELLO")
        world.sim.run(0.002)
    world.sim.run(2)
    world.m.say(HOME, Kind.HELLO, b"no HELLO")
    world.sim.run(0.1)
    lines = [line for line in world.a.reports if "bonding message from 10.0.0.66@tcp" in line]
    assert 1 <= len(lines) <= 5
    assert "more like this" in lines[-1]
    assert world.a.core.stats.drops["bonding message that breaks the rules"] == 501
    world.sane()


@pytest.mark.requirement("BOND-bds")
def test_who_names_a_server_s_slave_is_not_the_server() -> None:
    world = World(bds=[B[1]])
    world.sim.run(2)
    world.say(world.m.nid, *B)
    (server,) = world.bond.servers.all.values()
    assert server.peer is world.bond.peers[B_BOND]
    world.sim.run(20)
    assert server.state is ServerState.READY


@pytest.mark.requirement("BOND-bds")
def test_a_server_s_stale_word_does_not_hide_a_peer_whose_first_slave_answers() -> None:
    sim = Simulation(seed=3)
    a = bonded(sim, "a", *A, bds=["10.0.0.66@tcp"])
    b = bonded(sim, "b", *B)
    bonded(sim, "c", "10.0.0.3@tcp", "10.1.0.3@tcp1")  # has the address that was b's
    b.attach(30)

    m = Liar(sim, "m", "10.0.0.66@tcp")
    sim.run(3)
    put = a.put(B_BOND, 30, data=b"x")
    sim.run_until(lambda: put.ended, 60)
    assert m.asked
    assert put.ok, put.reason
    sim.run_until_quiet()


class Liar(ScriptedBond):
    """A server that says of everybody that its slave is c's."""

    asked = 0

    def _take(self, heard: Heard) -> None:
        super()._take(heard)
        kind = heard.hdr.match_bits & 0xFF
        if heard.hdr.portal or not heard.payload:
            return
        if kind == Kind.HELLO:
            told = BondHello.unpack(heard.payload)
            answer = BondHello(self.incarnation, told.source, self.configuration(), (3,))
            self.say(heard.source, Kind.HELLO, answer.pack())
        elif kind == Kind.REGISTER:
            request = Register.unpack(heard.payload)
            self.say(heard.source, Kind.ANSWER, Answer(request.request, request.configuration.nid).pack())
        elif kind == Kind.RESOLVE:
            self.asked += 1
            question = Resolve.unpack(heard.payload)
            c = SlaveEntry(Nid.parse("10.1.0.3@tcp1"))
            first = Nid.of(Nid.parse(B[0]).net, question.nid.address)
            found = Configuration(question.nid, (SlaveEntry(first, status=2), c), active=1)
            self.say(heard.source, Kind.ANSWER, Answer(question.request, question.nid, 0, 5, found).pack())


# At random -----------------------------------------------------------------------------------------------

POOL = [
    *A,
    *B,
    "10.0.0.66@tcp",
    "10.1.0.66@tcp1",
    "10.0.9.9@tcp",
    "10.2.0.9@tcp2",
    "fd00::9@tcp",
    "10.0.0.5@o2ib",
]


def hostile(rng: Random, world: World) -> tuple[Kind, bytes]:
    slaves = [world.m.nid, *(Nid.parse(one) for one in rng.sample(POOL, rng.randrange(0, len(POOL))))]
    if rng.random() < 0.6:
        rng.shuffle(slaves)
    entries = tuple(
        SlaveEntry(nid, rng.choice((0, 1, 65535)), rng.choice((0, 1, 2, 3, 255)))
        for nid in dict.fromkeys(slaves)
    )
    own = world.bond.incarnation
    configuration = Configuration(
        Nid.of(BOND, entries[0].nid.address),
        entries,
        rng.choice(list(Mode)),
        rng.choice((0, 1, 2, 3, 4, 77, 255)),
        rng.random() < 0.5,
        rng.randrange(len(entries)),
    )
    stamp = rng.choice((1, 5, own, world.m.incarnation, 0xFFFFFFFF, rng.randrange(1, 1 << 32)))
    target = rng.choice((0, own, own - 1, 0xFFFFFFFF))
    masks = rng.choice(((0,), (3,), (7,), (7, 1, 1), ((1 << 64) - 1,)))
    guard = rng.randbytes(2) if masks[0] & 4 else b""
    kind = rng.choice((Kind.HELLO, Kind.HELLO, Kind.HELLO, Kind.REGISTER, Kind.RESOLVE, Kind.ANSWER))
    made: BondHello | Register | Resolve | Answer = BondHello(
        stamp, target, configuration, masks, guard=guard
    )
    if kind is Kind.REGISTER:
        made = Register(rng.randrange(1 << 32), stamp, configuration)
    elif kind is Kind.RESOLVE:
        made = Resolve(rng.randrange(1 << 32), rng.choice((B_BOND, configuration.nid)), world.m.bond)
    elif kind is Kind.ANSWER:
        made = Answer(rng.randrange(1, 20), configuration.nid, rng.choice((0, 2)), stamp, configuration)
    try:
        payload = bytearray(made.pack(rng.choice(("little", "big"))))
    except WireError:
        return kind, b""
    if rng.random() < 0.3:
        payload[rng.randrange(len(payload))] ^= 1 << rng.randrange(8)
    return kind, bytes(payload[: rng.randrange(len(payload)) if rng.random() < 0.1 else None])


def fuzz(seed: int) -> None:
    rng = Random(seed)
    world = World(
        f"fuzz {seed}",
        mode=rng.choice(("standby", "loadbalance")),
        keepalive=1,
        bds=[A[0]] if rng.random() < 0.5 else [B[1]],
    )
    for _ in range(60):
        kind, payload = hostile(rng, world)
        if rng.random() < 0.2:
            world.m.incarnation = rng.randrange(1, 1 << 32)
        world.m.answers_beacons = rng.random() < 0.8
        world.m.say(HOME, kind, payload)
        if rng.random() < 0.3:
            world.a.put(world.m.bond, 30, data=b"for m")
        if rng.random() < 0.3:
            world.a.put(B_BOND, 30, data=b"for b")
        world.sim.run(rng.choice((0.001, 0.01, 0.5, 3.0)))
        world.sane()
    assert len(world.bond.peers) <= 6  # b, and what this node itself wanted to reach
    assert len(world.bond.data.registry) <= 2
    assert all(peer.state in PeerState for peer in world.bond.peers.values())
    world.gets_through()
    world.sim.run_until_quiet(2000)


@pytest.mark.requirement("BOND-hello")
@pytest.mark.parametrize("seed", range(15))
def test_hostile_messages_harm_nobody_else(seed: int) -> None:
    fuzz(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1150))
def test_many_hostile_messages(seed: int) -> None:
    fuzz(seed)


def test_many_paths_that_fail_at_once_are_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    for number in range(1, 120):
        nid = Nid.parse(f"10.0.8.{number}@tcp")
        told = BondHello(5, 0, Configuration(Nid.of(BOND, nid.address), (SlaveEntry(nid),)), (3,))
        world.bond.handshake.take_hello(told, world.a.core.nis[HOME], nid)
    looks = 0
    look = Slaves.look

    def counted(slaves: Slaves, peers: Iterable[BondPeer]) -> tuple[bool, bool]:
        nonlocal looks
        looks += slaves is world.bond.slaves
        return look(slaves, peers)

    monkeypatch.setattr(Slaves, "look", counted)
    for peer in list(world.bond.peers.values()):
        for path in peer.paths:
            world.bond.suspect(peer, path)
    assert looks == 0
    world.a.core.tick(world.bond.clock())
    assert looks == 1


def invented(first: int) -> list[str]:
    """63 slaves at which there is nobody."""
    return [f"10.0.{9 + number // 250}.{1 + number % 250}@tcp" for number in range(first, first + 63)]


@pytest.mark.requirement("BOND-health")
@pytest.mark.parametrize("pause", [100, 1], ids=["once", "often"])
@pytest.mark.parametrize("new", [0, 63], ids=["the same", "others"])
def test_of_the_slaves_that_a_peer_names_few_are_asked_at_a_time_and_all_in_turn(
    new: int, pause: int
) -> None:
    """All were asked at once, and again with each HELLO: this node's own calls waited behind those."""
    world = World()
    asked, most = set(), 0
    for number in range(80):
        if number % pause == 0:
            world.say(world.m.nid, *invented(number * new))
        if number % 20 == 0:
            world.a.put(world.m.bond, 30, data=b"x")
        for _ in range(5):
            world.sim.run(0.1)
            probed = {path.nid for path in world.bond.peers[world.m.bond].paths if path.probing}
            asked |= probed
            most = max(most, len(world.bond.control._under_way))
    assert most <= 8 + 2  # beside what is told, and a keepalive
    assert pause == 1 or asked >= {Nid.parse(one) for one in invented(0)}
    world.gets_through()
    world.sane()

"""Plain nodes that list NIDs of nets with certificates (docs/security.md)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from control.discovery.test_discovery_elsewhere import sent_to, settle
from control.discovery.test_discovery_hostile import answer, attach, info, peer, push, put
from support.fabric import Fabric
from ulnet.control.instance import LNet
from ulnet.core.md import MdOption
from ulnet.core.msg import NO_PAYLOAD
from ulnet.core.tunables import LndTunables
from ulnet.nid import Nid
from ulnet.sim import Simulation
from ulnet.wire.lnet import Header, MsgType
from ulnet.wire.ping import PingInfo

A, A1 = Nid.parse("10.0.0.1@tcp"), Nid.parse("10.1.0.1@tcp1")
VICTIM, VICTIM1, FOE = (Nid.parse(nid) for nid in ("10.0.0.7@tcp", "10.1.0.7@tcp1", "10.1.0.66@tcp1"))
SECOND, THIRD, FAR = (Nid.parse(nid) for nid in ("10.0.0.8@tcp", "10.0.0.9@tcp", "10.9.0.7@tcp9"))
FAR1 = Nid.parse("10.1.0.8@tcp1")
OFFER, REQUIRE = LndTunables(security=1), LndTunables(security=2)


@pytest.fixture
def fabric() -> Fabric:
    return Fabric()


def both(fabric: Fabric, security: LndTunables) -> LNet:
    """A node of a secured net and of a plain one."""
    a = fabric.node(discovery=True)
    a.add_ni(A1.net, A1)
    a.add_ni(A.net, A, lnd_tunables=security)
    attach(a)
    return a


def listing(fabric: Fabric, a: LNet, *nids: Nid) -> LNet:
    """A plain node that lists these NIDs."""
    foe = fabric.node(str(FOE))
    attach(foe)
    answer(foe, info(0xFFFFFFF0, *nids))
    put(a, FOE)
    push(foe, A1, info(0xFFFFFFF1, *nids))
    fabric.run()
    return foe


def opened_to_the_victim(fabric: Fabric, a: LNet, foe: LNet, to: Nid = A1) -> bytes:
    """What the foe writes into memory that is open to the victim alone."""
    opened = bytearray(8)
    me = a.memory.me_attach(9, match_bits=1, nid=VICTIM)
    a.memory.md_attach(me, opened, None, options=MdOption.OP_PUT)
    foe.put(foe.memory.md_bind(b"EVIL", None, threshold=2), to, 9, 1)
    settle(fabric)
    return bytes(opened)


@pytest.mark.parametrize("nids", [(FOE, VICTIM), (VICTIM, FOE)], ids=["as its second", "as its first"])
@pytest.mark.parametrize("when", ["before", "net later", "security later"])
@pytest.mark.parametrize("known", ["", "named"])
def test_a_plain_node_gets_nothing_that_is_for_a_secured_net(
    fabric: Fabric, nids: tuple[Nid, ...], when: str, known: str
) -> None:
    """All messages for a node that had not been heard yet went to it, and half of them after that."""
    if when == "before":
        a = both(fabric, REQUIRE)
    else:
        a = fabric.node(str(A1), discovery=True)
        attach(a)
        if when == "security later":
            a.add_ni(A.net, A, lnd_tunables=LndTunables())
    fabric.certificates[VICTIM] = frozenset((VICTIM,))
    if known and when == "before":
        a.peers.name([VICTIM])
    foe = listing(fabric, a, *nids)
    if when == "net later":
        a.add_ni(A.net, A, lnd_tunables=REQUIRE)
    elif when == "security later":
        tunables = a.nis[A].lnd_tunables
        assert tunables is not None
        tunables.security = 2
        a.retune(a.nis[A])
    before = foe.stats.recv_count
    put(a, VICTIM)
    fabric.run()
    assert opened_to_the_victim(fabric, a, foe) == bytes(8)
    victim = fabric.node(str(VICTIM), discovery=True)
    got = attach(victim)
    put(victim, A)
    settle(fabric)
    assert sent_to(fabric, a, VICTIM, got) == 8
    assert list(peer(a, VICTIM).nids()) == [VICTIM]
    push(foe, A1, info(0xFFFFFFF2, *nids))
    settle(fabric, 12)
    assert sent_to(fabric, a, VICTIM, got) == 8
    assert not peer(a, FOE).vouching
    assert foe.stats.recv_count - before <= 4, "its own pings and pushes alone"


def test_who_shows_a_certificate_is_in_no_plain_peer_any_more(fabric: Fabric) -> None:
    """Its certificate became one of the peer that had listed it."""
    a = both(fabric, OFFER)
    fabric.certificates[VICTIM] = frozenset((VICTIM,))
    foe = listing(fabric, a, FOE, VICTIM)
    assert list(peer(a, VICTIM).nids()) == [FOE, VICTIM]
    victim = fabric.node(str(VICTIM))
    got = attach(victim)
    put(victim, A)
    fabric.run()
    assert list(peer(a, VICTIM).nids()) == [VICTIM]
    assert not peer(a, FOE).vouching
    assert opened_to_the_victim(fabric, a, foe) == bytes(8)
    assert sent_to(fabric, a, VICTIM, got) == 8
    fabric.assert_conserved()


@pytest.mark.parametrize("order", [(VICTIM, VICTIM1), (VICTIM1, VICTIM)], ids=["secured", "plain"])
@pytest.mark.parametrize("nids", [(VICTIM, VICTIM1), (VICTIM1, VICTIM)], ids=["secured first", "plain first"])
@pytest.mark.parametrize("name", [lambda a: None, lambda a: a.peers.name([VICTIM1])], ids=["", "named"])
def test_a_node_of_both_nets_is_one_peer_where_its_certificate_is_for_both(
    fabric: Fabric, nids: tuple[Nid, ...], order: tuple[Nid, ...], name: Callable[[LNet], None]
) -> None:
    a = both(fabric, REQUIRE)
    name(a)
    fabric.certificates[VICTIM] = frozenset((VICTIM, VICTIM1))
    node = fabric.node(*map(str, nids), discovery=True)
    attach(node)
    for nid in order * 2:
        put(a, nid)
        settle(fabric, 12)
    assert sorted(peer(a, VICTIM).nids()) == [VICTIM, VICTIM1]
    fabric.assert_conserved()


def test_the_node_itself_is_one_peer(fabric: Fabric) -> None:
    a = both(fabric, REQUIRE)
    put(a, A1)
    settle(fabric)
    assert sorted(peer(a, A).nids()) == [A, A1]


@pytest.mark.parametrize("back", [False, True], ids=["its former node is down", "its former node is there"])
@pytest.mark.parametrize("lies", [False, True], ids=["", "lists what was its peer's"])
@pytest.mark.parametrize("first", [VICTIM, SECOND], ids=["it was the second", "it was the first"])
@pytest.mark.parametrize("name", [lambda a: None, lambda a: a.peers.name([VICTIM])], ids=["", "named"])
def test_a_nid_with_another_certificate_is_another_nodes(
    fabric: Fabric, name: Callable[[LNet], None], first: Nid, lies: bool, back: bool
) -> None:
    """A certificate was for two NIDs; the host of one of them is another node now, with one of its own."""
    a = both(fabric, REQUIRE)
    name(a)
    fabric.certificates |= dict.fromkeys((VICTIM, SECOND), frozenset((VICTIM, SECOND)))
    nids = sorted((VICTIM, SECOND), key=lambda nid: nid != first)
    former = fabric.node(*map(str, nids), discovery=True)
    attach(former)
    for nid in (VICTIM, SECOND):
        put(a, nid)
        settle(fabric, 3)
    assert sorted(peer(a, VICTIM).nids()) == [VICTIM, SECOND]
    for nid in nids:
        fabric.nis.pop(nid)
    fabric.cores.remove(former)
    fabric.certificates |= {nid: frozenset((nid,)) for nid in nids}
    new = fabric.node(str(SECOND), discovery=True)
    got = attach(new)
    if lies:
        answer(new, info(0xFFFFFFF0, SECOND, VICTIM))
        push(new, A, info(0xFFFFFFF1, SECOND, VICTIM))
    assert opened_to_the_victim(fabric, a, new, A) == bytes(8)
    assert list(peer(a, SECOND).nids()) == [SECOND]
    if back:
        renewed = fabric.node(str(VICTIM), discovery=True)
        theirs = attach(renewed)
        put(renewed, A)
        settle(fabric, 12)
        assert sent_to(fabric, a, VICTIM, theirs) == 8
    else:
        assert not sent_to(fabric, a, VICTIM, got)
    assert sent_to(fabric, a, SECOND, got) == 8


@pytest.mark.parametrize(
    "renewed", [(VICTIM, SECOND, THIRD), (VICTIM, SECOND)], ids=["for more NIDs", "for the same"]
)
def test_a_node_with_a_renewed_certificate_stays_one_peer(fabric: Fabric, renewed: tuple[Nid, ...]) -> None:
    """Connections with the former one go on beside those with the new one."""
    a = both(fabric, REQUIRE)
    before = frozenset((VICTIM, SECOND))
    fabric.certificates |= dict.fromkeys(before, before)
    node = fabric.node(str(VICTIM), str(SECOND), discovery=True)
    attach(node)
    put(a, VICTIM)
    settle(fabric, 3)
    its = peer(a, VICTIM)
    assert sorted(its.nids()) == [VICTIM, SECOND]
    after = frozenset(renewed)
    receivers = [a.receiver(a.nis[A], VICTIM, one.__contains__) for one in (before, after)]
    for number in range(4):
        hdr = Header(int(MsgType.PUT), A, VICTIM, portal=5, match_bits=number)
        receivers[number % 2].begin(hdr, NO_PAYLOAD)  # type: ignore[arg-type]
        assert peer(a, VICTIM) is peer(a, SECOND) is its
        assert its.members[VICTIM].vouches == after.__contains__


def test_what_a_renewed_certificate_is_for_is_asked_for_again(fabric: Fabric) -> None:
    """The former one was not for a NID that the node had listed."""
    a = both(fabric, REQUIRE)
    fabric.certificates[VICTIM] = frozenset((VICTIM,))
    node = fabric.node(str(VICTIM), str(FAR), discovery=True)
    attach(node)
    put(a, VICTIM)
    settle(fabric, 3)
    assert list(peer(a, VICTIM).nids()) == [VICTIM]
    fabric.certificates[VICTIM] = frozenset((VICTIM, FAR))
    put(node, A)
    settle(fabric, 12)
    assert sorted(peer(a, VICTIM).nids()) == [VICTIM, FAR]


def test_many_nids_with_one_certificate_have_one(fabric: Fabric) -> None:
    """Each of 2,000 NIDs that were listed was looked for in 1,000 that were one."""
    a = both(fabric, REQUIRE)
    certificate = frozenset((VICTIM, SECOND))
    fabric.certificates |= dict.fromkeys(certificate, certificate)
    attach(fabric.node(str(VICTIM), str(SECOND), discovery=True))
    for nid in (VICTIM, SECOND):
        put(a, nid)
        settle(fabric, 3)
    whose = peer(a, VICTIM)
    assert all(pni.vouches is not None for pni in whose.members.values())
    assert whose.vouching == [certificate.__contains__]


@pytest.mark.parametrize("first", [VICTIM, FAR1], ids=["that it is named by", "beside it"])
@pytest.mark.parametrize("renewed", [False, True], ids=["its first", "a renewed one"])
def test_what_waits_for_a_nid_goes_on_where_its_certificate_leaves_it(first: Nid, renewed: bool) -> None:
    """The other NID of the peer was asked, which is down, and the message failed."""
    sim = Simulation(1)
    a = sim.node("a", "10.0.0.1@tcp", "10.1.0.1@tcp1")
    b = sim.node("b", str(VICTIM))
    b.attach(30)
    core = a.core
    nids = sorted((VICTIM, FAR1), key=lambda nid: nid != first)
    whose = core.peers.name(nids)
    if renewed:
        whose.members[VICTIM].vouches = frozenset(nids).__contains__
    put = a.put(VICTIM, 30, data=b"x")
    assert whose.parked
    core.receiver(core.nis[A], VICTIM, frozenset((VICTIM,)).__contains__)
    sim.run_until(lambda: put.ended, 60)
    assert put.ok
    assert list(peer(core, VICTIM).nids()) == [VICTIM]


def test_who_waits_for_a_nid_that_goes_over_to_another_peer_in_the_same_turn_is_told(fabric: Fabric) -> None:
    """It waited for ever for the peer that the NID was for a moment."""
    a, certificate, told = both(fabric, REQUIRE), frozenset((VICTIM, SECOND)), []
    fabric.silent |= {VICTIM, FAR1}
    whose = a.peers.name([FAR1, VICTIM])
    whose.members[VICTIM].vouches = frozenset((VICTIM, FAR1)).__contains__
    node = fabric.node(str(SECOND), discovery=True)
    fabric.certificates |= dict.fromkeys(certificate, certificate)
    put(node, A)
    settle(fabric, 2)
    a.discovery.discover(VICTIM, done=lambda error, found: told.append((error, found)))
    fabric.run()
    assert [waiter.nid for waiter in whose.waiters] == [VICTIM]
    node.add_ni(VICTIM.net, VICTIM)
    fabric.silent.clear()
    a.discovery.pushed(SECOND, PingInfo.unpack(info(0x7FFFFFF0, SECOND, VICTIM)), SECOND)
    a.receiver(a.nis[A], VICTIM, certificate.__contains__)
    settle(fabric, 10)
    assert told == [(None, peer(a, SECOND))]
    assert list(peer(a, SECOND).nids()) == [SECOND, VICTIM]

"""Discovery between cores on a wire in memory, step by step (spec discovery.md §3–§10)."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from support.fabric import Fabric, Recorder
from support.generation_node import take_no_pushes
from ulnet.control.discovery.answers import Answers
from ulnet.control.instance import LNet
from ulnet.core.faults import Fault, FaultKind
from ulnet.core.lnd import NiEvent
from ulnet.core.md import MdOption
from ulnet.core.msg import Msg
from ulnet.core.ni import NI
from ulnet.core.peer import Peer, PeerFlag
from ulnet.core.status import HealthStatus, LNetError
from ulnet.core.tunables import NetTunables
from ulnet.nid import ANY_NID, LO_NID, Nid
from ulnet.wire.lnet import PING_MATCH_BITS, MsgType
from ulnet.wire.ping import Feature, NiEntry, NiStatus, PingInfo

A, A1 = Nid.parse("10.0.0.1@tcp"), Nid.parse("10.1.0.1@tcp1")
B, B1, B2 = (Nid.parse(f"10.{rail}.0.2@tcp{rail or ''}") for rail in range(3))
C, NOBODY = Nid.parse("10.0.0.3@tcp"), Nid.parse("10.0.0.9@tcp")
KNOWN = 0x111


class Told(list[tuple[LNetError | None, Peer | None]]):
    def __call__(self, error: LNetError | None, peer: Peer | None) -> None:
        self.append((error, peer))


@pytest.fixture
def fabric() -> Fabric:
    return Fabric()


def node(fabric: Fabric, *nids: Nid) -> LNet:
    return fabric.node(*map(str, nids), discovery=True)


def attach(core: LNet, size: int = 100) -> Recorder:
    got = Recorder()
    me = core.memory.me_attach(5, match_bits=7)
    core.memory.md_attach(me, bytearray(size), got, options=MdOption.OP_PUT | MdOption.OP_GET)
    return got


def put(core: LNet, target: Nid, data: bytes = b"1") -> Recorder:
    sent = Recorder()
    core.put(core.memory.md_bind(data, sent, threshold=2), target, 5, 7)
    return sent


def peer(core: LNet, nid: Nid) -> Peer:
    found = core.peers.find(nid)
    assert found is not None
    return found


def known(core: LNet, nid: Nid) -> list[Nid]:
    return list(peer(core, nid).nids())


def carried(fabric: Fabric) -> list[tuple[str, int]]:
    """What is on the wire: kind and portal."""
    return [(MsgType(msg.hdr.type).name, msg.hdr.portal) for _, msg in fabric.wire]


def is_ping(msg: Msg) -> bool:
    return msg.hdr.type == MsgType.GET and msg.hdr.portal == 0


def is_push(msg: Msg) -> bool:
    return msg.hdr.type == MsgType.PUT and msg.hdr.portal == 0


def until(fabric: Fabric, what: Callable[[Msg], bool]) -> tuple[NI, Msg]:
    """Step until the next message on the wire is such a one."""
    for _ in range(40):
        for core in fabric.cores:
            core.tick(fabric.clock.now)
        if fabric.wire and what(fabric.wire[0][1]):
            return fabric.wire[0]
        fabric.step()
    raise AssertionError("no such message")


# First use -------------------------------------------------------------------------------------------


@pytest.mark.requirement("dyn-005", "dyn-010", "dyn-015", "dyn-020", "dyn-025", "dyn-030", "cfg-085")
def test_the_first_message_waits_until_both_know_each_other(fabric: Fabric) -> None:
    a, b = node(fabric, A, A1), node(fabric, B, B1)
    got = attach(b)
    sent = [put(a, B, bytes([n])) for n in range(3)]
    a.tick(fabric.clock.now)
    assert carried(fabric) == [("GET", 0)]  # the ping alone
    fabric.run()
    assert [one.kinds for one in sent] == [["SEND", "ACK"]] * 3
    assert [bytes(event.data)[0] for event in got] == [0, 1, 2]
    assert peer(a, B).flags == peer(b, A).flags == KNOWN
    assert known(a, B1) == [B, B1]
    assert known(b, A1) == [A, A1]
    assert {event.initiator for event in got} == {A}
    count = a.stats.send_count
    put(a, B1)
    fabric.run()
    assert a.stats.send_count == count + 1
    fabric.assert_conserved()


@pytest.mark.requirement("dyn-010")
def test_a_push_that_nobody_takes_is_dropped_there_and_costs_the_sender_nothing(fabric: Fabric) -> None:
    """As a node without Multi-Rail does, which is known as one that has it: it was another one before."""
    a, b = node(fabric, A), node(fabric, B)
    attach(b)
    put(a, B)
    fabric.run()
    take_no_pushes(b)
    old = memoryview(PingInfo(int(Feature.NI_STATUS), 12345, NiStatus.UP, [NiEntry(B)]).pack())
    assert b.info._ping is not None
    b.info._ping.fragments, b.info._ping.length = [old], old.nbytes
    peer(b, A).guard = b""  # so that it says nothing of what it drops
    seen = b.stats.drop_count
    a.add_ni(A1.net, A1)
    fabric.run()
    assert b.stats.drop_count == seen + 1
    assert b.stats.drops["no matching entry"] == 1
    assert peer(a, B).flags & PeerFlag.PUSH_SENT
    meanwhile = put(a, B)
    fabric.run()
    assert meanwhile.kinds == ["SEND", "ACK"]
    told = Told()
    a.discover(B, done=told)
    fabric.clock.now += a.settings.transaction_timeout + 1
    fabric.run()
    ((error, _),) = told  # who asked hears that it was not answered
    assert error is not None
    assert error.errno == errno.ETIMEDOUT
    later = put(a, B)
    fabric.run()
    assert later.kinds == ["SEND", "ACK"]
    assert not peer(a, B).multi_rail
    assert b.stats.drop_count == seen + 1  # it is told no more


@pytest.mark.requirement("dyn-010")
def test_a_push_without_multi_rail_is_dropped_and_nothing_of_it_believed(fabric: Fabric) -> None:
    a, b = node(fabric, A), node(fabric, B)
    attach(b)
    put(a, B)
    fabric.run()
    old = PingInfo(int(Feature.NI_STATUS), 12345, 9, [NiEntry(A), NiEntry(A1)])
    before = known(b, A), peer(b, A).flags
    sent = Recorder()
    a.put(a.memory.md_bind(old.pack(), sent, threshold=2), B, 0, PING_MATCH_BITS)
    fabric.run()
    assert b.stats.drops["push of a peer without Multi-Rail"] == 1
    assert (known(b, A), peer(b, A).flags) == before
    assert not carried(fabric)  # it is not asked, either
    again = put(a, B)
    fabric.run()
    assert again.kinds == ["SEND", "ACK"]


def test_pings_ask_for_what_real_nodes_ask_for(fabric: Fabric) -> None:
    a, _ = node(fabric, A), node(fabric, B)
    put(a, B)
    a.tick(fabric.clock.now)
    ((_, msg),) = fabric.wire
    assert (msg.hdr.match_bits, msg.hdr.length, msg.hdr.offset) == (PING_MATCH_BITS, 272, 0)
    fabric.run()


@pytest.mark.requirement("dyn-055")
def test_answers_and_pings_start_no_discovery(fabric: Fabric) -> None:
    a, b = fabric.node(str(A)), node(fabric, B)
    attach(b)
    put(a, B)
    a.get(a.memory.md_bind(bytearray(1), None, threshold=2), B, 5, 7)
    b.get(b.memory.md_bind(bytearray(300), None, threshold=2, options=0x10), A, 0, PING_MATCH_BITS)
    fabric.run()
    assert peer(b, A).flags == 0
    assert a.stats.recv_count == 3  # ACK, REPLY, ping: nothing else was asked


@pytest.mark.requirement("dyn-055")
def test_an_answer_that_leaves_by_another_ni_starts_no_discovery(fabric: Fabric) -> None:
    a = fabric.node(str(A))
    b = fabric.node(str(B), str(C), discovery=True, tunables=NetTunables(peer_credits=1))
    attach(b)
    for _ in range(2):
        a.get(a.memory.md_bind(bytearray(1), None, threshold=2), B, 5, 7)
    for _ in range(2):
        fabric.step()
    b.del_ni(B)  # the second answer waits for the credit that the first one has
    fabric.run()
    assert peer(b, A).flags == 0
    assert b.nis[C].stats.sent[MsgType.REPLY] == 1


def test_a_message_that_nobody_can_be_asked_about_fails_with_that_error(fabric: Fabric) -> None:
    a = node(fabric, A)
    sent = put(a, NOBODY), put(a, NOBODY)
    fabric.run()
    for one in sent:
        assert [event.status for event in one] == [-errno.ECONNREFUSED]
        assert one[0].reason == f"{NOBODY} could not be discovered: nobody there"
    assert peer(a, NOBODY).flags == PeerFlag.REDISCOVER
    node(fabric, NOBODY)
    again = put(a, NOBODY)
    fabric.run()
    assert again.kinds == ["SEND", "ACK"]  # it left; nobody took it, and the peer said so
    assert [event.status for event in again] == [0, -errno.ENOENT]
    assert peer(a, NOBODY).flags == KNOWN


def test_a_push_that_fails_fails_who_waited_for_it(fabric: Fabric) -> None:
    a, _ = node(fabric, A), node(fabric, B)
    sent = put(a, B)
    for _ in range(40):
        fabric.step(is_push)
    assert [event.status for event in sent] == [-errno.ECONNREFUSED]
    assert peer(a, B).flags & PeerFlag.REDISCOVER


def test_silence_is_given_up_after_the_transaction_timeout(fabric: Fabric) -> None:
    a, b = node(fabric, A), node(fabric, B)
    b.faults.add(Fault(FaultKind.DROP, A, B, rate=1))  # it hears, and never answers
    sent = put(a, B)
    told = Told()
    a.discover(B, done=told)
    for _ in range(20):
        fabric.step()
    assert not sent
    fabric.clock.now += a.settings.transaction_timeout + 1
    fabric.run()
    assert {event.status for event in sent} == {-errno.ETIMEDOUT}
    assert sent[-1].unlinked
    ((error, found),) = told
    assert found is None
    assert error is not None
    assert error.errno == errno.ETIMEDOUT


# Late news -------------------------------------------------------------------------------------------


def told(sequence: int, *nids: Nid) -> PingInfo:
    """What a Multi-Rail node says of itself."""
    entries = [NiEntry(nid, NiStatus.UP) for nid in nids]
    return PingInfo(int(Feature.NI_STATUS | Feature.MULTI_RAIL | Feature.DISCOVERY), 12345, sequence, entries)


@pytest.mark.requirement("HLD-fsm")
@pytest.mark.parametrize("newer", [True, False])
def test_of_two_infos_that_reach_a_peer_the_newer_one_counts(fabric: Fabric, newer: bool) -> None:
    """One came by the NID that it is known by, the other by one that is not known to be its own."""
    a = node(fabric, A)
    owner, other = (a.peers.learn(nid) for nid in (B, B1))
    assert owner is not None and other is not None
    owner.peer.news = told(2, B)
    other.peer.news = told(3, B, B1) if newer else told(1, B, B1, B2)
    other.peer.mark(PeerFlag.MULTI_RAIL)
    owner.peer.mark(PeerFlag.MULTI_RAIL)
    assert a.discovery.merging.merge(other.peer) is owner.peer
    assert known(a, B) == ([B, B1] if newer else [B])


@pytest.mark.requirement("HLD-fsm")
def test_of_two_pushes_the_newer_one_counts() -> None:
    found = Peer(B, int(PeerFlag.MULTI_RAIL))
    answers = Answers(lambda: 1, lambda kind, line: None)
    for sequence in (3, 4, 3):
        answers.take_push(found, told(sequence, B))
    assert found.news is not None and found.news.sequence == 4
    assert found.flags & PeerFlag.FORCE_PING  # the last one was late, or of another life


# Sizes -----------------------------------------------------------------------------------------------


@pytest.mark.requirement("HLD-fsm")
def test_buffers_that_are_too_small_grow(fabric: Fabric) -> None:
    many = [Nid.parse(f"10.0.{n}.{n + 2}@tcp{n}") for n in range(1, 31)]
    a, b = node(fabric, A, *(Nid.parse(f"10.0.{n}.1@tcp{n}") for n in range(1, 31))), node(fabric, B, *many)
    attach(b)
    sent = put(a, B)
    fabric.run()
    assert sent.kinds == ["SEND", "ACK"]
    assert len(known(a, B)) == len(known(b, A)) == 31
    assert peer(a, B).allowance.info_size == 16 + 16 * 32
    assert peer(a, B).flags == peer(b, A).flags == KNOWN
    fabric.assert_conserved()


class Liar:
    """Makes a node answer pings with given bytes."""

    def __init__(self, core: LNet, data: bytes) -> None:
        self.core = core
        self.say(data)

    def say(self, data: bytes) -> None:
        md = self.core.info._ping
        assert md is not None
        md.fragments = [memoryview(data)]
        md.length = len(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage" * 8,
        PingInfo(0x1E, 12345, 2, [NiEntry(B)]).pack()[:40],
        PingInfo(0x1E, 12345, 2, [NiEntry(B)] * 4000).pack()[:300],
        b"gnip" + b"\xff" * 268,
    ],
)
def test_nonsense_is_asked_for_a_bounded_number_of_times(fabric: Fabric, data: bytes) -> None:
    a, b = node(fabric, A), fabric.node(str(B))
    Liar(b, data)
    sent = put(a, B)
    fabric.run()
    assert [event.status for event in sent] == [-errno.EPROTO]
    assert 2 <= b.stats.recv_count <= 8
    assert known(a, B) == [B]


def test_info_that_names_nobody_settles_a_peer_as_it_is(fabric: Fabric) -> None:
    a, b = node(fabric, A), fabric.node(str(B))
    liar = Liar(b, b"")
    for entries in ([], [NiEntry(ANY_NID)], [NiEntry(LO_NID), NiEntry(LO_NID)]):
        liar.say(PingInfo(0x1E, 12345, 2, entries).pack())
        told = Told()
        a.discover(B, done=told)
        fabric.run()
        assert len(told) == 1
        assert known(a, B) == [B]


# Generations and modes -------------------------------------------------------------------------------


@pytest.mark.requirement("dyn-035", "dyn-040", "bck-025")
@pytest.mark.parametrize(
    ("features", "flags"),
    [
        (Feature.NI_STATUS | Feature.RTE_DISABLED, 0x112),
        (Feature.NI_STATUS | Feature.RTE_DISABLED | Feature.DISCOVERY, 0x110),
        (Feature.NI_STATUS | Feature.RTE_DISABLED | Feature.MULTI_RAIL, 0x112),
        (Feature.NI_STATUS | Feature.MULTI_RAIL, 0x116),
    ],
)
def test_peers_without_multi_rail_or_discovery_stay_one_nid(
    fabric: Fabric, features: int, flags: int
) -> None:
    a, b = node(fabric, A, A1), fabric.node(str(B))
    Liar(b, PingInfo(int(features), 12345, 2, [NiEntry(B), NiEntry(B1)]).pack())
    got = attach(b)
    sent = put(a, B)
    fabric.run()
    assert sent.kinds == ["SEND", "ACK"]
    assert got.kinds == ["PUT"]
    assert peer(a, B).flags == flags
    assert known(a, B) == [B]
    assert b.stats.recv_count == 2  # ping and PUT: no push


def test_a_peer_that_stops_discovering_is_one_nid_again(fabric: Fabric) -> None:
    a, b = node(fabric, A, A1), node(fabric, B, B1)
    attach(b)
    put(a, B)
    fabric.run()
    b.set_discovery(0)
    fabric.run()
    assert a.peers.find(B1) is None  # b said so in a push
    assert b.peers.find(A) is None  # until somebody asks
    sent = put(a, B)
    fabric.run()
    assert sent.kinds == ["SEND", "ACK"]
    assert peer(a, B).flags == 0x112
    b.set_discovery(1)
    told = Told()
    a.discover(B, done=told)
    fabric.run()
    assert known(a, B) == [B, B1]


@pytest.mark.parametrize("found", [False, True])
def test_configured_peers_keep_their_rails_without_discovery(fabric: Fabric, found: bool) -> None:
    a, b = node(fabric, A, A1), node(fabric, B, B1)
    attach(b)
    a.peers.add(B, [B1])
    if found:
        put(a, B)
        fabric.run()
    a.set_discovery(0)
    fabric.run()
    sent = put(a, B)
    fabric.run()
    assert sent.kinds == ["SEND", "ACK"]
    assert known(a, B) == [B, B1]
    assert peer(a, B).flags == 0x11B


def test_discovery_off_on_verify_are_the_only_modes(fabric: Fabric) -> None:
    a = node(fabric, A)
    for mode in (-1, 3):
        with pytest.raises(LNetError, match="0 \\(off\\), 1 \\(on\\) or 2 \\(verify\\)"):
            a.set_discovery(mode)
    assert a.settings.discovery == 1


@pytest.mark.requirement("dyn-060")
def test_what_was_learned_is_not_called_configured(fabric: Fabric) -> None:
    """Both peers are known by what they once said; then discovery only compares."""
    a, b = node(fabric, A), node(fabric, B, B1)
    put(a, B)
    fabric.run()
    assert known(a, B) == [B, B1]
    a.set_discovery(2)
    b.del_ni(B1)
    b.add_ni(B2.net, B2)
    a.peers.learn(B2)
    a.discover(B, done=Told(), force=True)
    fabric.run()
    assert list(peer(a, B).differences) == [
        f"peer {B} lists {B2}, which is known as one of peer {B2}",
        f"peer {B} was known to have {B1}, which it does not list",
    ]


@pytest.mark.requirement("dyn-060")
def test_to_verify_changes_nothing_and_tells_each_difference_once(fabric: Fabric) -> None:
    a, b = node(fabric, A, A1), node(fabric, B, B1)
    a.set_discovery(2)
    attach(b)
    a.peers.add(B, [B2])
    a.peers.add(C, [B1])
    put(a, B)
    fabric.run()
    assert known(a, B) == [B, B2]
    assert list(peer(a, B).differences) == [
        f"peer {B} lists {B1}, which is configured for peer {C}",
        f"peer {B} is configured with {B2}, which it does not list",
    ]
    for _ in range(2):
        a.discover(B, done=Told())
        fabric.run()
    assert [line for line in fabric.reports if line in peer(a, B).differences] == list(peer(a, B).differences)
    assert a.discovery.merging.differences == 2 + len(peer(a, C).differences)  # b also sent from C's NID
    assert known(b, A) == [A, A1]  # the protocol runs: a pushed
    a.peers.delete(B, [B2])
    a.peers.delete(C)
    a.peers.add(B, [B1])
    a.discover(B, done=Told())
    fabric.run()
    assert peer(a, B).differences == ()


def test_a_push_to_a_node_that_verifies_is_compared_and_not_merged(fabric: Fabric) -> None:
    a, b = node(fabric, A, A1), node(fabric, B)
    b.set_discovery(2)
    attach(b)
    put(a, B)
    fabric.run()
    assert known(b, A) == [A]
    assert f"peer {A} lists {A1}, which is not configured" in peer(b, A).differences
    assert any(line.startswith(f"peer {A} says that it is Multi-Rail") for line in fabric.reports)


# Changes ---------------------------------------------------------------------------------------------


@pytest.mark.requirement("dyn-045", "dyn-050")
def test_every_change_of_our_nis_is_pushed(fabric: Fabric) -> None:
    a, b = node(fabric, A, A1), node(fabric, B)
    attach(b)
    put(a, B)
    fabric.run()
    third = Nid.parse("10.2.0.1@tcp2")
    a.add_ni(B2.net, third)
    fabric.run()
    assert known(b, A) == [A, A1, third]
    a.del_ni(A1)
    fabric.run()
    assert known(b, A) == [A, third]
    a.ni_event(a.nis[third], NiEvent.FATAL)
    fabric.run()
    pni = b.peers.find_ni(third)
    assert pni is not None
    assert pni.said_down
    assert pni.health == 900
    a.ni_event(a.nis[third], NiEvent.RECOVERED)
    fabric.run()
    assert b.peers.find_ni(third) is pni
    assert [one.said_down for one in peer(b, A).nis()] == [False, False]
    for value in (0, 1000):
        a.health.values.set_ni(a.nis[third], value)
        fabric.run()
        assert [one.said_down for one in peer(b, A).nis()] == [False, not value]
    assert peer(a, B).pushed_sequence == a.info.sequence
    fabric.assert_conserved()


def test_removing_the_primary_nid_renames_a_peer(fabric: Fabric) -> None:
    a, b = node(fabric, A, A1), node(fabric, B, B1)
    attach(b)
    put(a, B)
    fabric.run()
    b.del_ni(B)
    fabric.run()
    assert known(a, B1) == [B1]
    assert a.peers.find(B) is None


@pytest.mark.requirement("dyn-045")
def test_messages_do_not_wait_for_a_push_that_is_due(fabric: Fabric) -> None:
    """A deliberate difference: the rail that the push should take may be dead."""
    a, b = node(fabric, A, A1), node(fabric, B, B1)
    attach(b)
    put(a, B)
    fabric.run()
    a.add_ni(B2.net, Nid.parse("10.2.0.1@tcp2"))
    sent = put(a, B)
    assert carried(fabric) == [("PUT", 5)]
    fabric.run()
    assert sent.kinds == ["SEND", "ACK"]


def test_only_peers_that_know_us_hear_of_changes(fabric: Fabric) -> None:
    a, _ = node(fabric, A), node(fabric, B)
    a.peers.add(B)
    a.peers.learn(C)
    a.add_ni(A1.net, A1)
    fabric.run()
    assert a.stats.send_count == 0


@pytest.mark.requirement("HLD-redisc")
@pytest.mark.parametrize(("force", "sent"), [(False, ["GET"]), (True, ["GET", "PUT"])])
def test_rediscovery_asks_again_and_tells_again_if_forced(
    fabric: Fabric, force: bool, sent: list[str]
) -> None:
    a, b = node(fabric, A), node(fabric, B)
    attach(b)
    put(a, B)
    fabric.run()
    before = list(a.nis[A].stats.sent)
    told = Told()
    a.discover(B, force=force, done=told)
    fabric.run()
    kinds = [MsgType(kind).name for kind in range(4) if a.nis[A].stats.sent[kind] > before[kind]]
    assert sorted(kinds) == sorted(sent)
    assert told == [(None, peer(a, B))]


def test_discovery_of_loopback_and_of_what_is_no_peer(fabric: Fabric) -> None:
    a = node(fabric, A)
    told = Told()
    a.discover(LO_NID, done=told)
    assert not told  # never inside the call
    fabric.run()
    ((error, found),) = told
    assert error is None
    assert found is not None
    assert found.primary_nid == LO_NID
    with pytest.raises(LNetError, match="cannot be a peer"):
        a.discover(ANY_NID, done=told)
    a.shutdown()
    with pytest.raises(LNetError, match="shutting down"):
        a.discover(B, done=told)


def test_a_caller_that_fails_breaks_nothing(fabric: Fabric) -> None:
    a, b = node(fabric, A), node(fabric, B)
    attach(b)

    def bad(error: LNetError | None, found: Peer | None) -> None:
        raise RuntimeError("oops")

    a.discover(B, done=bad)
    sent = put(a, B)
    fabric.run()
    assert sent.kinds == ["SEND", "ACK"]
    assert any("oops" in line for line in fabric.reports)


@pytest.mark.parametrize("steps", range(12))
def test_shutdown_ends_whoever_waits(fabric: Fabric, steps: int) -> None:
    a, b = node(fabric, A, A1), node(fabric, B, B1)
    attach(b)
    sent = [put(a, B), put(a, B1), put(a, NOBODY)]
    told = Told()
    a.discover(B, done=told)
    a.discover(NOBODY, done=told)
    for _ in range(steps):
        fabric.step()
    a.shutdown()
    fabric.run()
    b.shutdown()
    fabric.run()
    assert all(one[-1].status or one[-1].unlinked for one in sent)
    assert len(told) == 2
    assert not a.memory.mds
    fabric.assert_conserved()


@pytest.mark.parametrize("steps", range(10))
@pytest.mark.parametrize("what", ["del_ni", "add_ni", "peer del", "peer add", "off", "unlink"])
def test_whatever_changes_meanwhile_every_message_ends(fabric: Fabric, steps: int, what: str) -> None:
    a, b = node(fabric, A, A1), node(fabric, B, B1)
    attach(b)
    sent = Recorder()
    md = a.memory.md_bind(b"1", sent, threshold=2)
    a.put(md, B, 5, 7)
    told = Told()
    a.discover(B1, done=told)
    for _ in range(steps):
        fabric.step()
    if what == "del_ni":
        a.del_ni(A)
    elif what == "add_ni":
        a.add_ni(B2.net, Nid.parse("10.2.0.1@tcp2"))
    elif what == "peer del":
        found = a.peers.find(B)
        if found is not None:
            a.peers.delete(found.primary_nid)
    elif what == "peer add":
        a.peers.add(B, [B1])
    elif what == "off":
        a.set_discovery(0)
    else:
        a.memory.md_unlink(md)
    for _ in range(200):
        fabric.run()
        fabric.clock.now += 1.0
    assert sent[-1].status or sent[-1].unlinked
    assert len(told) == 1
    if what in ("add_ni", "peer del", "peer add", "off"):
        assert sent.kinds == ["SEND", "ACK"]
    assert all(not one.parked and not one.waiters for one in a.peers)


# Configuration and locks -----------------------------------------------------------------------------


def test_a_configured_peer_gives_up_its_nid_to_nobody(fabric: Fabric) -> None:
    a, b = node(fabric, A), node(fabric, B, B1)
    a.peers.add(C, [B1])
    attach(b)
    put(a, B)
    fabric.run()
    assert known(a, B) == [B]
    assert known(a, C) == [C, B1]
    assert f"peer {B} lists {B1}, which stays with peer {C}" in fabric.reports


def test_status_of_configured_peers_is_taken(fabric: Fabric) -> None:
    a, b = node(fabric, A), node(fabric, B, B1)
    a.peers.add(B, [B1])
    attach(b)
    b.ni_event(b.nis[B1], NiEvent.FATAL)
    put(a, B)
    fabric.run()
    pni = a.peers.find_ni(B1)
    assert pni is not None
    assert pni.said_down


def test_a_locked_primary_nid_stays(fabric: Fabric) -> None:
    a, b = node(fabric, A, A1), node(fabric, B, B1)
    attach(b)
    locked = a.peers.add(B1, lock_primary=True)
    locked.mark(remove=PeerFlag.CONFIGURED)  # as an upper layer's lock: nobody configured it
    a.peers._strangers[locked] = None
    put(a, B1)
    fabric.run()
    assert known(a, B) == [B1, B]
    b.del_ni(B1)
    fabric.run()
    pni = a.peers.find_ni(B1)
    assert pni is not None
    assert pni.said_down  # it may not go, so it is not used


def test_a_nid_taken_by_configuration_makes_its_peer_be_asked_again(fabric: Fabric) -> None:
    a, b = node(fabric, A), node(fabric, B, B1)
    attach(b)
    put(a, B)
    fabric.run()
    asked = b.stats.recv_count
    a.peers.delete(B, [B1])
    fabric.run()
    assert b.stats.recv_count == asked + 1
    assert known(a, B) == [B, B1]  # it has it still


# Identity --------------------------------------------------------------------------------------------


@pytest.mark.requirement("dyn-065")
def test_another_node_behind_a_nid_is_noticed_before_data_goes_there(fabric: Fabric) -> None:
    a, b = node(fabric, A, A1), node(fabric, B, B1)
    attach(b)
    put(a, B)
    fabric.run()
    b.shutdown()
    c = node(fabric, C, B)  # another node, with other NIDs
    got = attach(c)
    a.peer_restarted(B)
    sent = put(a, B)
    a.tick(fabric.clock.now)
    assert carried(fabric) == [("GET", 0)]
    for _ in range(60):
        fabric.run()
        fabric.clock.now += 1.0
    assert f"peer {B} answers as {C} now" in fabric.reports
    assert known(a, B) == [C, B]
    assert a.peers.find(B1) is None
    assert sent.kinds == ["SEND", "ACK"]
    assert len(got) == 1


def test_a_peer_that_began_anew_is_told_our_nids_again(fabric: Fabric) -> None:
    a, b = node(fabric, A, A1), node(fabric, B)
    attach(b)
    put(a, B)
    fabric.run()
    b.peers.delete(A)  # as if b had forgotten all
    a.peer_restarted(B)
    put(a, B)
    fabric.run()
    assert known(b, A) == [A, A1]


@pytest.mark.requirement("HLD-dyn", "dyn-050")
@pytest.mark.parametrize("what", [is_ping, is_push])
def test_an_answer_lost_with_an_ni_is_not_waited_for(fabric: Fabric, what: Callable[[Msg], bool]) -> None:
    a, b = node(fabric, A, A1), node(fabric, B, B1)
    attach(b)
    put(a, B)
    fabric.run()
    a.discover(B, force=True, done=Told())
    left_by, _ = until(fabric, what)
    fabric.step()
    _, answer = until(fabric, lambda msg: True)
    assert answer.hdr.type in (MsgType.ACK, MsgType.REPLY)
    fabric.wire.clear()
    b.completed([answer], HealthStatus.OK)  # it left b, and never arrived
    a.del_ni(left_by.nid)
    fabric.run()  # no time passes
    assert [known(b, nid) for nid in a.nis if nid != LO_NID] == [[A1 if left_by.nid == A else A]]
    assert a.leaving.announced()
    fabric.assert_conserved()


# Hostile peers ---------------------------------------------------------------------------------------


def test_a_push_cannot_speak_for_others(fabric: Fabric) -> None:
    a, b, c = fabric.node(str(A)), node(fabric, B), node(fabric, C)
    attach(c)
    put(b, C)
    fabric.run()
    stolen = PingInfo(0x1E, 12345, 99, [NiEntry(C), NiEntry(B1)]).pack()
    a.put(a.memory.md_bind(stolen, None, threshold=1), B, 0, PING_MATCH_BITS, ack=False)
    fabric.run()
    assert known(b, C) == [C]
    assert b.peers.find(B1) is None


def test_two_peers_that_claim_one_nid_do_not_keep_us_busy(fabric: Fabric) -> None:
    a, b, c = node(fabric, A), fabric.node(str(B)), fabric.node(str(C))
    for core, nid in ((b, B), (c, C)):
        attach(core)
        Liar(core, PingInfo(0x1E, 12345, 5, [NiEntry(nid), NiEntry(B2)]).pack())
    core_told = Told()
    for nid in (B, C, B, C):
        a.discover(nid, done=core_told)
        fabric.run(1000)
    assert [error for error, _ in core_told] == [None] * 4
    assert peer(a, B2) is peer(a, B)  # who listed it first


def test_status_words_that_nobody_knows_mean_up(fabric: Fabric) -> None:
    a, b = node(fabric, A), fabric.node(str(B))
    Liar(b, PingInfo(0x1E, 12345, 5, [NiEntry(B, 77), NiEntry(B1, NiStatus.DOWN)]).pack())
    a.discover(B, done=Told())
    fabric.run()
    assert [pni.said_down for pni in peer(a, B).nis()] == [False, True]

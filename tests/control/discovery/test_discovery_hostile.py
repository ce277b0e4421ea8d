"""Peers that lie about who they are, or say too much (spec discovery.md §5 to §7)."""

from __future__ import annotations

import errno

import pytest

from support.fabric import Fabric, Recorder
from ulnet.control.instance import LNet
from ulnet.core.md import MdOption
from ulnet.core.msg import Incoming
from ulnet.core.peer import Peer
from ulnet.core.peer_table import MAX_UNCONFIGURED
from ulnet.core.status import LNetError
from ulnet.lnd.contract import Inbound
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.lnet import PING_MATCH_BITS, Header, MsgType
from ulnet.wire.ping import NiEntry, PingInfo

A, A1 = Nid.parse("10.0.0.1@tcp"), Nid.parse("10.1.0.1@tcp1")
B, B1 = Nid.parse("10.0.0.2@tcp"), Nid.parse("10.1.0.2@tcp1")
C, C1 = Nid.parse("10.0.0.3@tcp"), Nid.parse("10.1.0.3@tcp1")
BOND = Nid.parse("10.0.0.9@bond0")


def names(nids: tuple[Nid, ...]) -> str:
    return "+".join(map(str, nids))


@pytest.fixture
def fabric() -> Fabric:
    return Fabric()


def answer(core: LNet, data: bytes) -> None:
    md = core.info._ping
    assert md is not None
    md.fragments = [memoryview(data)]
    md.length = len(data)


def info(sequence: int, *nids: Nid) -> bytes:
    return PingInfo(0x1E, LNET_PID, sequence, [NiEntry(nid) for nid in nids]).pack()


def push(liar: LNet, to: Nid, data: bytes) -> None:
    liar.put(liar.memory.md_bind(data, None, threshold=2), to, 0, PING_MATCH_BITS)


def attach(core: LNet) -> Recorder:
    got = Recorder()
    me = core.memory.me_attach(5, match_bits=7)
    core.memory.md_attach(me, bytearray(100), got, options=MdOption.OP_PUT | MdOption.OP_GET)
    return got


def put(core: LNet, target: Nid) -> Recorder:
    sent = Recorder()
    core.put(core.memory.md_bind(b"1", sent, threshold=2), target, 5, 7)
    return sent


def peer(core: LNet, nid: Nid) -> Peer:
    found = core.peers.find(nid)
    assert found is not None
    return found


# Other people's NIDs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("spoken", [False, True], ids=["new", "spoken-with-itself"])
@pytest.mark.parametrize("nids", [(B, A), (B, A1), (A, B), (A1, B)], ids=names)
@pytest.mark.parametrize("how", ["push", "ping"])
def test_nobody_takes_our_own_nids(fabric: Fabric, how: str, nids: tuple[Nid, ...], spoken: bool) -> None:
    a, liar = fabric.node(str(A), str(A1), discovery=True), fabric.node(str(B))
    mine, theirs = attach(a), attach(liar)
    if spoken:
        put(a, A1)
        fabric.run()
        mine.clear()
    answer(liar, info(2, *nids))
    if how == "push":
        push(liar, A, info(2, *nids))
        fabric.run()
    put(a, B)
    fabric.run()
    assert list(peer(a, B).nids()) == [B]
    assert (len(mine), len(theirs)) == (0, 1)
    for own in (A, A1):
        put(a, own)
        fabric.run()
    assert (len(mine), len(theirs)) == (2, 1)
    assert list(peer(a, A).nids()) == [A, A1]
    own = next(nid for nid in nids if nid != B)
    assert any(f"peer {B} " in line and str(own) in line for line in fabric.reports)
    fabric.assert_conserved()


@pytest.mark.parametrize("nids", [(B, BOND), (BOND, B)], ids=names)
def test_a_bonding_nid_is_in_no_other_peer(fabric: Fabric, nids: tuple[Nid, ...]) -> None:
    a, liar = fabric.node(str(A), discovery=True), fabric.node(str(B))
    answer(liar, info(2, *nids))
    attach(liar)
    put(a, B)
    fabric.run()
    assert list(peer(a, B).nids()) == [B]
    assert a.peers.find(BOND) is None


@pytest.mark.parametrize("nids", [(B, C), (B, C1), (C, B), (C1, B)], ids=names)
def test_nobody_takes_the_nids_of_a_configured_peer(fabric: Fabric, nids: tuple[Nid, ...]) -> None:
    a, liar = fabric.node(str(A), discovery=True), fabric.node(str(B))
    a.peers.add(C, [C1], lock_primary=True)
    answer(liar, info(2, *nids))
    push(liar, A, info(2, *nids))
    fabric.run()
    assert list(peer(a, C).nids()) == [C, C1]
    assert peer(a, B) is not peer(a, C)


# Too much --------------------------------------------------------------------------------------------


def test_pushes_that_refer_to_one_another_are_merged_all(fabric: Fabric) -> None:
    a = fabric.node(str(A), discovery=True)
    nids = [Nid.parse(f"10.2.{n // 250}.{n % 250 + 1}@tcp") for n in range(2000)]
    for nid in nids:
        a.peers.learn(nid)
    for nid, other in zip(nids, [*nids[1:], nids[0]], strict=True):
        a.discovery.pushed(nid, PingInfo.unpack(info(9, other, nid)))
    fabric.run(100_000)
    assert not any(a.discovery.queued(one) or one.parked or one.news for one in a.peers)


def test_two_peers_may_quarrel_over_thousands_of_nids(fabric: Fabric) -> None:
    a = fabric.node(str(A), discovery=True)
    many = [Nid.parse(f"10.{n >> 8}.{n & 255}.7@tcp") for n in range(4000)]
    for nid in (B, C):
        a.peers.learn(nid)
    for sequence in range(2, 5):
        for nid in (B, C):
            a.discovery.pushed(nid, PingInfo.unpack(info(sequence, nid, *many)))
            tick_until_merged(a, fabric)
            assert list(peer(a, many[0]).members) == [nid, *many]
    assert list(peer(a, B).members) == [B]


def tick_until_merged(core: LNet, fabric: Fabric, most: int = 200) -> int:
    """How many ticks it takes until no news wait."""
    for ticks in range(most):
        if not any(one.news for one in core.peers):
            return ticks
        core.tick(fabric.clock.now)
    raise AssertionError(f"news wait after {most} ticks")


def test_others_have_their_turns_while_thousands_of_nids_are_merged(fabric: Fabric) -> None:
    a = fabric.node(str(A), discovery=True)
    many = [Nid.parse(f"10.{n >> 8}.{n & 255}.7@tcp") for n in range(1000)]
    for nid in (B, C):
        a.peers.learn(nid)
    a.discovery.pushed(B, PingInfo.unpack(info(2, B, *many)))
    a.discovery.pushed(C, PingInfo.unpack(info(2, C, C1)))
    a.tick(fabric.clock.now)
    a.tick(fabric.clock.now)
    assert list(peer(a, C).members) == [C, C1]
    assert not peer(a, C).news
    assert 1 < len(peer(a, B).members) <= 200
    tick_until_merged(a, fabric)
    assert list(peer(a, B).members) == [B, *many]
    assert peer(a, B).merging is None
    a.discovery.pushed(B, PingInfo.unpack(info(3, B, *many[500:])))
    tick_until_merged(a, fabric)
    assert list(peer(a, B).members) == [B, *many[500:]]


def test_newer_news_replace_those_that_are_being_merged(fabric: Fabric) -> None:
    a = fabric.node(str(A), discovery=True)
    first, second = ([Nid.parse(f"10.{x}.{n}.7@tcp") for n in range(200)] for x in (1, 2))
    a.peers.learn(B)
    a.discovery.pushed(B, PingInfo.unpack(info(2, B, *first)))
    a.tick(fabric.clock.now)
    a.discovery.pushed(B, PingInfo.unpack(info(3, B, *second)))
    tick_until_merged(a, fabric)
    assert list(peer(a, B).members) == [B, *second]


def test_two_peers_quarrel_at_the_same_time_and_come_to_an_end(fabric: Fabric) -> None:
    a = fabric.node(str(A), discovery=True)
    many = [Nid.parse(f"10.{n >> 8}.{n & 255}.7@tcp") for n in range(1000)]
    for nid in (B, C):
        a.peers.learn(nid)
        a.discovery.pushed(nid, PingInfo.unpack(info(2, nid, *many)))
    assert tick_until_merged(a, fabric) < 40
    owners = {peer(a, nid) for nid in many}
    assert owners <= {peer(a, B), peer(a, C)}


def test_who_never_acknowledges_our_push_keeps_no_place_for_ever(fabric: Fabric) -> None:
    """Some peers that fill the table, and stay under discovery, do not keep others out."""
    a = fabric.node(str(A), discovery=True)
    for number in range(17):
        nid = Nid.parse(f"10.9.0.{number + 1}@tcp")
        fabric.node(str(nid))
        a.peers.learn(nid)
        others = [Nid.parse(f"10.{100 + number}.{n >> 8}.{n & 255}@tcp") for n in range(4000)]
        a.discovery.pushed(nid, PingInfo.unpack(info(2, nid, *others)))
        for _ in range(3):
            fabric.step(lambda msg: msg.hdr.type == MsgType.ACK)
    assert a.peers.learn(B) is not None
    assert len(list(a.peers.nis())) <= MAX_UNCONFIGURED
    fabric.run()


# Not hostile at all ----------------------------------------------------------------------------------


def test_a_peer_may_be_looked_at_again_and_again(fabric: Fabric) -> None:
    """Many callers force one round on: that is no info that makes no sense."""
    a, b = fabric.node(str(A), discovery=True), fabric.node(str(B), discovery=True)
    attach(b)
    told: list[LNetError | None] = []
    sent = put(a, B)
    for _ in range(50):
        a.discover(B, force=True, done=lambda error, found: told.append(error))
        fabric.step()
        fabric.step()
    fabric.run()
    assert sent.kinds == ["SEND", "ACK"]
    assert told == [None] * 50


def test_a_peer_deleted_as_the_node_shuts_down_forgets_no_message(fabric: Fabric) -> None:
    a, _ = fabric.node(str(A), discovery=True), fabric.node(str(B), discovery=True)
    sent = put(a, B)
    fabric.step()
    a.peers.delete(B)
    a.shutdown()
    fabric.run()
    assert [(event.status, event.unlinked) for event in sent] == [(-errno.ESHUTDOWN, True)]
    assert not a.memory.mds


def test_who_pushes_without_end_is_heard_now_and_then(fabric: Fabric) -> None:
    """A list of a thousand NIDs takes 20 ms: before, a flood of them left no time for anything else."""
    a, liar = fabric.node(str(A), discovery=True), fabric.node(str(B))

    def heard(sequence: int) -> bool:
        """Whether a list of new NIDs is taken; the liar sends it as one that has just been told all."""
        new = [Nid.parse(f"10.{sequence}.{n >> 8}.{n & 255}@tcp7") for n in range(1000)]
        for _ in range(2):  # the buffer for pushes grows with the first that does not fit
            push(liar, A, info(sequence, B, *new))
            fabric.run(10_000)
        return a.peers.find(new[0]) is peer(a, B)

    assert [heard(sequence) for sequence in range(2, 8)] == [True, True, False, False, False, False]
    assert a.stats.drops["more pushes than a peer may send"] == 8
    fabric.clock.now += 20
    assert heard(9)


class Arriving:
    """The payload of a message that comes at once."""

    def __init__(self, receiver: Inbound, data: bytes) -> None:
        self.receiver = receiver
        self.data = data

    def take(self, incoming: Incoming | None, buffers: list[memoryview], mlen: int, rlen: int) -> None:
        if incoming is not None:
            buffers[0][:] = self.data[:mlen]
            self.receiver.end(incoming)

    def abandon(self, incoming: Incoming) -> bool:
        return False

    def unanswered(self) -> None:
        pass


def pushed(core: LNet, source: Nid, data: bytes) -> bool:
    """Whether a push of a peer on a connection of its own is taken."""
    before = core.stats.drops.total()
    hdr = Header(int(MsgType.PUT), A, source, payload_length=len(data), match_bits=PING_MATCH_BITS)
    receiver = core.receiver(core.nis[A], source)
    assert receiver.begin(hdr, Arriving(receiver, data)) == 0
    return core.stats.drops.total() == before


def test_many_peers_that_push_long_lists_take_no_more_time_than_a_few(fabric: Fabric) -> None:
    """200 connections that push 1,000 NIDs each: a ping of another peer took 8 times as long."""
    a = fabric.node(str(A), discovery=True)
    size = 16 + 16 + 1000 * 16

    def come(turn: int) -> int:
        """How many of 200 peers are heard."""
        nids = [Nid.parse(f"10.{turn}.{n >> 8}.{n & 255}@tcp7") for n in range(999)]
        peers = [Nid.parse(f"10.0.{turn}.{number}@tcp") for number in range(1, 201)]
        return sum(pushed(a, each, info(2, each, *nids)) for each in peers)

    heard = come(1)
    assert heard == 2 * 65536 // (size - 272)
    assert a.stats.drops["more pushes than all peers may send"] == 200 - heard
    fabric.clock.now += 1.0
    assert come(2) == (2 * 65536 - heard * (size - 272) + 32768) // (size - 272)
    many = [Nid.parse(f"10.9.{n >> 8}.{n & 255}@tcp7") for n in range(999)]
    assert not pushed(a, C, info(2, C, *many))
    a.peers.add(C, [C1])
    assert pushed(a, C, info(2, C, *many)), "configured"


def test_thousands_of_peers_that_start_together_are_all_heard(fabric: Fabric) -> None:
    a = fabric.node(str(A), discovery=True)
    started = [Nid.parse(f"10.0.{number >> 8}.{number & 255}@tcp") for number in range(256, 5256)]
    assert all(pushed(a, each, info(2, each)) for each in started)
    assert sum(pushed(a, each, info(3, each)) for each in started) == 24 * 65536 // 272 - 5000
    fabric.clock.now += 1.0
    assert sum(pushed(a, each, info(4, each)) for each in started) == (24 * 65536 + 32 * 4096) // 272 - 5782


def test_who_pushes_in_ever_new_names_is_heard_now_and_then(fabric: Fabric) -> None:
    """One connection and 36 invented sources on another net: a turn of 3.7 s."""
    a = fabric.node(str(A))
    data = PingInfo(0x1E, 12345, 4, [NiEntry(Nid.parse(f"10.7.0.{n}@tcp9")) for n in range(1, 255)]).pack()

    def comes(number: int, hop: Nid) -> bool:
        """Whether a push of one more node is taken; `hop` sends it."""
        dropped = a.stats.drops["more pushes than a peer may send"]
        source = Nid.parse(f"10.9.{number >> 8}.{number & 255}@tcp9")
        hdr = Header(int(MsgType.PUT), A, source, payload_length=len(data), match_bits=PING_MATCH_BITS)
        receiver = a.receiver(a.nis[A], hop)
        assert receiver.begin(hdr, Arriving(receiver, data)) == 0
        return a.stats.drops["more pushes than a peer may send"] == dropped

    heard = sum(comes(number, B) for number in range(1, 300))
    assert heard == 2 * 65536 // len(data)
    assert comes(300, C), "whom another node sends for is heard"
    fabric.clock.now += 1.0
    assert sum(comes(number, B) for number in range(301, 400)) == 8 * 4096 // len(data)


def test_a_push_beyond_what_a_peer_may_send_is_asked_for_when_it_matters(fabric: Fabric) -> None:
    a, b = fabric.node(str(A), discovery=True), fabric.node(str(B), discovery=True)
    attach(b)
    put(a, B)
    fabric.run()
    before = b.info.sequence
    peer(a, B).allowance.silent_at = fabric.clock.now + 16
    b.add_ni(B1.net, B1)
    fabric.run()
    assert b.info.sequence > before
    assert list(peer(a, B).nids()) == [B]
    put(a, B)
    fabric.run()
    assert list(peer(a, B).nids()) == [B, B1]

"""Identities of PUTs, what is kept of them, and ping information that says so."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from control.discovery.test_discovery_hostile import Arriving
from control.discovery.test_discovery_takeover import Held
from support.fabric import Fabric
from support.shared import shared_path
from ulnet.control.instance import LNet
from ulnet.core.event import Event, EventKind
from ulnet.core.guard import seen as seen_module
from ulnet.core.guard.identity import (
    AGAIN,
    FIRST,
    MAX_NUMBER,
    again,
    identity,
    is_identity,
    tag_of,
)
from ulnet.core.guard.receiver import ReceiverGuard, Verdict
from ulnet.core.guard.seen import NO_ACK, Seen
from ulnet.core.md import ACK_DISABLE, MANAGE_REMOTE, OP_PUT, TRUNCATE, Md
from ulnet.core.msg import Incoming, Msg
from ulnet.core.peer import Peer
from ulnet.core.status import HealthStatus
from ulnet.lnd.contract import Inbound, Payload
from ulnet.nid import Nid
from ulnet.wire.lnet import NO_WMD, Header, MsgType, unpack_header
from ulnet.wire.ping import Feature, NiEntry, PingInfo

PUT = int(MsgType.PUT)
COOKIE = 77
TAG = tag_of(COOKIE)
LIFE = b"sendlife"
SECRET = b"of this node"
HOP, OTHER_HOP = Nid.parse("1.1.1.2@tcp"), Nid.parse("1.1.1.3@tcp")


def named(number: int, tag: bytes = TAG) -> bytes:
    return identity(LIFE, number, tag)


@given(st.integers(0, MAX_NUMBER - 1), st.binary(min_size=2, max_size=2), st.binary(min_size=8, max_size=8))
def test_identities_keep_their_number_and_say_what_they_are(number: int, tag: bytes, life: bytes) -> None:
    first = identity(life, number, tag)
    assert len(first) == 16
    assert int.from_bytes(first[8:13], "big") == number
    assert again(first)[8:13] == first[8:13]
    assert first != again(first)
    assert (first[15], again(first)[15]) == (FIRST, AGAIN)
    assert is_identity(first)
    assert is_identity(again(first))


@given(st.integers(0, (1 << 56) - 1))
def test_handles_of_kernel_nodes_are_no_identities(cookie: int) -> None:
    cookie = cookie & ~3 | 1  # the low bits tell the type: a memory descriptor
    assert not is_identity(bytes(8) + cookie.to_bytes(8, "little"))
    assert not is_identity(bytes(8) + cookie.to_bytes(8, "big"))
    assert not is_identity(NO_WMD)


@given(st.lists(st.integers(0, 3 << 16), max_size=60), st.lists(st.integers(0, 3 << 16), max_size=20))
def test_notes_know_what_was_taken(taken: list[int], asked: list[int]) -> None:
    notes = Seen(lambda: 0.0, SECRET)
    for number in taken:
        notes.note([named(number)], HOP)
    for number in taken + asked:
        assert notes.taken(named(number)) is (number in taken)
        assert notes.taken(identity(b"another!", number, TAG)) is False


@pytest.mark.pure
def test_what_notes_forget_they_do_not_deny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_module, "MAX_BYTES", 2 * (64 + 256))
    notes = Seen(lambda: 0.0, SECRET)
    for page in range(4):
        notes.note([named(page << 16)], HOP)
    assert [notes.taken(named((page << 16) + 1)) for page in range(4)] == [None, None, False, False]
    notes.note([named(5)], HOP)  # a page that was given up is begun anew
    assert notes.taken(named(5)) is None
    assert notes.taken(named(9 << 16)) is False


@pytest.mark.pure
def test_what_was_forgotten_long_ago_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_module, "MAX_BYTES", 64 + 256)
    now = 0.0
    notes = Seen(lambda: now, SECRET)
    notes.note([named(0)], HOP)
    now = 500.0
    notes.note([named(1 << 16)], HOP)
    assert notes.taken(named(0)) is None
    now = 1099.0
    notes.note([named(2 << 16)], HOP)
    assert [notes.taken(named(page << 16)) for page in range(3)] == [None, None, True]
    now = 2300.0
    assert [notes.taken(named(page << 16)) for page in range(3)] == [False, False, True]


@pytest.mark.requirement("snd-045")
def test_lives_that_one_peer_invents_have_nothing_forgotten_of_others() -> None:
    notes = Seen(lambda: 0.0, SECRET)
    notes.note([named(7)], HOP)
    for number in range(40_000):
        notes.note([identity(number.to_bytes(8, "big"), 0, TAG)], OTHER_HOP)
    assert notes.taken(named(7)) is True
    assert [notes.taken(named(number)) for number in (6, 1 << 16, 2 << 16)] == [False] * 3
    assert notes.taken(identity(bytes(8), 0, TAG)) is None


@pytest.mark.pure
def test_hops_share_the_room_for_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_module, "MAX_BYTES", 20 * (64 + 256))
    notes = Seen(lambda: 0.0, SECRET)
    hops = [Nid.parse(f"1.1.2.{number}@tcp") for number in range(40)]
    for number in range(19):
        notes.note([named(number << 16)], HOP)
    for number, hop in enumerate(hops):
        notes.note([identity(b"life %03d" % number, 0, TAG)], hop)
    assert notes._bytes == sum(len(page) + 256 for page, *_ in notes._pages.values()) == 20 * 320
    assert {hop for _, hop, _ in notes._pages.values()} == set(notes._shares)
    assert sum(owner == HOP for _, owner, _ in notes._pages.values()) <= 1


@pytest.mark.pure
def test_a_hop_with_little_keeps_all_its_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_module, "MAX_BYTES", 20 * (64 + 256))
    notes = Seen(lambda: 0.0, SECRET)
    for number in range(3):
        notes.note([named(number << 16)], HOP)
    for number in range(40):
        notes.note([identity(b"another!", number << 16, TAG)], OTHER_HOP)
    for number in range(3, 8):
        notes.note([named(number << 16)], HOP)
    assert [notes.taken(named(number << 16)) for number in range(8)] == [True] * 8


def test_notes_of_many_quiet_peers_fit_in_little() -> None:
    notes = Seen(lambda: 0.0, SECRET)
    lives = [number.to_bytes(8, "big") for number in range(20_000)]
    for life in lives:
        notes.note([identity(life, 3, TAG)], HOP)
    assert all(notes.taken(identity(life, 3, TAG)) for life in lives)
    assert notes.taken(identity(lives[0], 60_000, TAG)) is False


@pytest.mark.pure
@pytest.mark.parametrize("first", [True, False])
def test_notes_never_take_more_than_their_bound(first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_module, "MAX_BYTES", 20_000)
    notes = Seen(lambda: 0.0, SECRET)
    for life in range(40):
        for number in (0, 65_535) if first else (65_535, 0):
            notes.note([identity(life.to_bytes(8, "big"), number, TAG)], HOP)
    assert sum(len(page) for page, *_ in notes._pages.values()) <= 20_000
    known = [notes.taken(identity(life.to_bytes(8, "big"), 65_535, TAG)) for life in range(40)]
    assert known == [None] * 38 + [True, True]


@pytest.mark.pure
def test_an_outcome_that_was_forgotten_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_module, "MAX_BYTES", 2 * (64 + 256) + 100)
    notes = Seen(lambda: 0.0, SECRET)
    for number in (1, 1 << 16):
        notes.note([named(number)], HOP)
        notes.note_length(named(number), 3)
    assert notes.taken(named(1)) is None
    assert notes.taken(named(1 << 16)) is True
    assert [notes.length(named(number), 10) for number in (1, 1 << 16, 1 + (1 << 16))] == [10, 3, 10]


@pytest.mark.requirement("snd-045")
@pytest.mark.parametrize("pages", [1, 40])
def test_outcomes_of_one_hop_have_none_of_others_forgotten(pages: int) -> None:
    """Neither by many of one page, nor by many pages; and one that comes again is kept once."""
    notes = Seen(lambda: 0.0, SECRET)
    notes.note([named(7)], HOP)
    for _ in range(2):
        notes.note_length(named(7), 3)
    assert notes._bytes == 64 + 256 + 96
    for number in range(100_000):
        wmd = identity(b"another!", (number % pages << 16) + number // pages % 65_536, TAG)
        notes.note([wmd], OTHER_HOP)
        notes.note_length(wmd, 3)
    assert (notes.taken(named(7)), notes.length(named(7), 10)) == (True, 3)
    assert notes.taken(named(6)) is False
    assert notes._bytes <= 8 << 20
    assert notes._bytes == sum(share.bytes for share in notes._shares.values())


def incoming(wmd: bytes, length: int = 0) -> Incoming:
    core = Fabric().node("1.1.1.1@tcp")
    sender = core.peers.learn(Nid.parse("1.1.1.2@tcp"))
    assert sender is not None
    (ni,) = [ni for ni in core.nis.values() if not ni.nid.is_lo]
    hdr = Header(type=PUT, dest_nid=ni.nid, src_nid=sender.nid, wmd=wmd, payload_length=length)
    return Incoming(hdr, ni, sender, sender.nid)


class Receiver(RuleBasedStateMachine):
    """PUTs and their resends come in any order, break, and come again: each is taken at most once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.once = ReceiverGuard(lambda: self.now, COOKIE, SECRET)
        self.taken: dict[int, int] = {}
        self.coming: dict[int, Incoming] = {}

    @rule(number=st.integers(0, 5), resend=st.booleans(), whole=st.sampled_from([True, False, None]))
    def comes(self, number: int, resend: bool, whole: bool | None) -> None:
        wmd = again(named(number)) if resend else named(number)
        once = self.once
        if not resend and (number in self.coming or self.taken.get(number)) and not once.is_repeated(wmd):
            return  # a first comes once
        if once.is_repeated(wmd):
            verdict = once.judge(wmd, HOP)
            if verdict is Verdict.ACKNOWLEDGE:
                assert self.taken[number] == 1
            if verdict is Verdict.REPLACE:
                assert number in self.coming
            elif verdict is not Verdict.TAKE:
                return
            else:
                assert not self.taken.get(number)
        msg = incoming(wmd)
        once.begins(msg)
        self.coming[number] = msg
        if whole is not None:
            self._ends(number, whole)

    def _ends(self, number: int, whole: bool) -> None:
        self.once.ended(self.coming.pop(number), whole)
        if whole:
            self.taken[number] = self.taken.get(number, 0) + 1

    @precondition(lambda self: self.coming)
    @rule(data=st.data(), whole=st.booleans())
    def ends(self, data: st.DataObject, whole: bool) -> None:
        self._ends(data.draw(st.sampled_from(sorted(self.coming))), whole)

    @invariant()
    def nothing_twice(self) -> None:
        assert all(count == 1 for count in self.taken.values())
        assert set(self.once.under_way) == {named(number)[:15] for number in self.coming}


TestReceiver = Receiver.TestCase


@pytest.mark.pure
def test_resends_for_another_life_and_beyond_the_room_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    once = ReceiverGuard(lambda: 0.0, COOKIE, SECRET)
    other = identity(LIFE, 1, bytes(byte ^ 1 for byte in TAG))
    assert once.is_meant(named(1))
    assert not once.is_meant(other)
    assert once.judge(again(other), HOP) is Verdict.DROP
    monkeypatch.setattr("ulnet.core.guard.receiver.MAX_RESENDS", 2)
    once.begins(incoming(again(named(2))))
    assert once.judge(again(named(1)), HOP) is Verdict.DROP  # that hop has as many as are left
    assert once.judge(again(named(1)), OTHER_HOP) is Verdict.TAKE


@pytest.mark.pure
def test_resends_of_long_ago_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    once = ReceiverGuard(lambda: now, COOKIE, SECRET)
    monkeypatch.setattr("ulnet.core.guard.receiver.MAX_RESENDS", 2)
    msg = incoming(again(named(2)))
    once.begins(msg)
    once.ended(msg, True)
    assert once.judge(again(named(1)), HOP) is Verdict.DROP
    now = 601.0
    assert once.judge(again(named(1)), HOP) is Verdict.TAKE
    assert not once.resends
    assert not once.resent_by


# On the wire -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("byteorder", ["little", "big"])
def test_ping_info_with_the_mark_differs_in_four_bytes(byteorder: str) -> None:
    entries = [NiEntry(Nid.parse("10.0.0.1@tcp")), NiEntry(Nid.parse("10.1.0.1@tcp1"))]
    features = int(Feature.NI_STATUS | Feature.MULTI_RAIL | Feature.DISCOVERY)
    plain = PingInfo(features, sequence=7, entries=entries)
    marked = PingInfo(features, sequence=7, entries=entries, guard=b"\x12\x34")
    without, bytes_with = plain.pack(byteorder), marked.pack(byteorder)  # type: ignore[arg-type]
    assert [at for at in range(len(without)) if without[at] != bytes_with[at]] == [44, 45, 46, 47]
    assert PingInfo.unpack(bytes_with) == marked
    assert PingInfo.unpack(without) == plain


@pytest.mark.parametrize("word", [0, 1, 272, 0x756B1234, 0xFFFFFFFF])
def test_other_values_in_the_place_of_the_mark_mean_nothing(word: int) -> None:
    info = PingInfo(int(Feature.NI_STATUS), entries=[NiEntry(Nid.parse("10.0.0.1@tcp"))])
    data = bytearray(info.pack())
    data[44:48] = word.to_bytes(4, "little")
    assert PingInfo.unpack(data) == info


def test_recorded_kernel_nodes_have_no_guard() -> None:
    found = 0
    for path in sorted(shared_path("vectors").rglob("*.pcap*")):
        raw = path.read_bytes()
        for magic in (b"gnip", b"ping"):
            at = raw.find(magic)
            while at >= 0:
                try:
                    info = PingInfo.unpack(raw[at : at + 4096])
                except ValueError:
                    pass
                else:
                    found += 1
                    assert info.guard == b""
                at = raw.find(magic, at + 1)
    assert found > 3


# The core ------------------------------------------------------------------------------------------


class World:
    """Two cores on a wire; b keeps identities."""

    def __init__(self) -> None:
        self.fabric = Fabric()
        self.a = self.fabric.node("10.0.0.1@tcp")
        self.b = self.fabric.node("10.0.0.2@tcp")
        self.target = Nid.parse("10.0.0.2@tcp")
        self.events: list[Event] = []
        self.got: list[Event] = []
        self.inbox = bytearray(16)
        me = self.b.memory.me_attach(30, match_bits=1)
        self.b.memory.md_attach(me, self.inbox, self.got.append, options=OP_PUT | MANAGE_REMOTE | TRUNCATE)
        self.plain()  # makes the peer
        pni = self.a.peers.find_ni(self.target)
        assert pni is not None
        pni.peer.guard = tag_of(self.b.state.cookie)
        self.peer = pni.peer

    def plain(self) -> None:
        md = self.a.memory.md_bind(b"hello", threshold=2)
        self.a.put(md, self.target, 30, 1)
        self.fabric.run()
        self.got.clear()

    def bind(self, data: bytes = b"data", threshold: int = -1) -> Md:
        return self.a.memory.md_bind(data, self.events.append, threshold=threshold)

    def sent(self) -> Msg:
        """The PUT that is on the wire."""
        return self.fabric.wire[-1][1]

    def deliver(
        self, wmd: bytes, length: int = 0, payload: Callable[[Inbound, bytes], Payload] = Arriving
    ) -> list[int]:
        """A PUT from a comes to b another time; what the ACKs say that it gets at once."""
        source = Nid.parse("10.0.0.1@tcp")
        hdr = Header(PUT, self.target, source, 12345, 12345, length, wmd, match_bits=1, portal=30)
        receiver = self.b.receiver(self.b.nis[self.target], source)
        assert receiver.begin(hdr, payload(receiver, bytes(length))) == 0
        return self.acks()

    def acks(self) -> list[int]:
        """How much was taken by the ACKs on the wire, which arrive."""
        found = [unpack_header(msg.pack(False), 0, False) for _, msg in self.fabric.wire]
        self.fabric.run()
        return [hdr.length for hdr in found if hdr.type == MsgType.ACK]


def test_a_put_is_named_for_a_peer_that_keeps_names_and_acknowledged_by_it() -> None:
    world = World()
    world.a.put(world.bind(threshold=2), world.target, 30, 1)
    assert is_identity(world.sent().wmd)
    world.fabric.run()
    assert [event.kind for event in world.events] == [EventKind.SEND, EventKind.ACK]
    assert world.events[-1].unlinked
    assert len(world.got) == 1
    world.fabric.assert_conserved()


def test_a_put_without_ack_and_one_to_another_peer_have_no_name() -> None:
    world = World()
    world.a.put(world.bind(threshold=1), world.target, 30, 1, ack=False)
    assert not is_identity(world.sent().wmd)
    world.peer.guard = b""
    world.a.put(world.bind(threshold=2), world.target, 30, 1)
    assert not is_identity(world.sent().wmd)
    world.fabric.run()


def test_memory_that_is_used_again_gets_another_name_once_it_is_free() -> None:
    world = World()
    md = world.bind()
    names = []
    for _ in range(3):
        world.a.put(md, world.target, 30, 1)
        names.append(world.sent().wmd)
        world.fabric.run()
    assert len(set(names)) == 3
    assert all(is_identity(name) for name in names)
    world.a.put(md, world.target, 30, 1)
    world.a.put(md, world.target, 30, 1)  # while the other is under way: no name of its own
    assert [is_identity(msg.wmd) for _, msg in world.fabric.wire] == [True, False]
    world.fabric.run()
    assert [event.kind for event in world.events].count(EventKind.ACK) == 5
    assert [event.status for event in world.events] == [0] * 10


def test_a_resend_of_what_was_taken_is_acknowledged_again_and_not_delivered() -> None:
    world = World()
    md = world.bind(b"", threshold=3)
    world.a.put(md, world.target, 30, 1)
    name = world.sent().wmd
    world.fabric.run()
    assert len(world.got) == 1
    before = world.b.stats.send_count
    world.deliver(again(name))
    assert len(world.got) == 1
    assert world.b.stats.send_count == before + 1  # the ACK, which a drops: it has one
    assert [event.kind for event in world.events] == [EventKind.SEND, EventKind.ACK]
    assert sum(world.a.stats.drops.values()) == 1


def test_a_resend_of_what_was_not_acknowledged_for_its_memory_went_is_not_either() -> None:
    world = World()
    world.fabric.slow = True
    world.a.put(world.bind(threshold=2), world.target, 30, 1)
    name = world.sent().wmd
    world.fabric.step()
    (md,) = [md for md in world.b.memory.mds.values() if md.me is not None and md.me.portal.index == 30]
    world.b.memory.md_unlink(md)  # while the payload is on its way
    world.fabric.run()
    assert [event.status for event in world.got] == [-errno.ETIMEDOUT]
    before = world.b.stats.send_count
    world.deliver(again(name))
    assert world.b.stats.send_count == before
    assert [event.kind for event in world.events] == [EventKind.SEND]


def given_up(world: World, wmd: bytes, options: int = 0) -> list[int]:
    """A PUT of 8 bytes to b of which only the header comes is given up; what the ACKs say that it gets."""
    me = world.b.memory.me_attach(30, match_bits=1, at_head=True)
    md = world.b.memory.md_attach(me, bytearray(16), world.got.append, options=OP_PUT | TRUNCATE | options)
    md.arriving = []
    assert world.deliver(wmd, 8, Held) == []
    assert world.b.give_up(md) == 1
    assert [event.status for event in world.got] == [-errno.ETIMEDOUT]
    world.got.clear()
    return world.acks()


@pytest.mark.parametrize("resend_first", [False, True])
def test_what_was_given_up_and_acknowledged_is_not_delivered_later(resend_first: bool) -> None:
    """Its sender was told that nothing was taken, and may have repeated it: that came twice."""
    world = World()
    first = identity(world.a.memory._wmd_prefix, 4711, tag_of(world.b.state.cookie))
    assert given_up(world, again(first) if resend_first else first) == [0]
    if resend_first:
        assert world.deliver(first, 8) == []
    assert world.deliver(again(first), 8) == [0]
    assert world.got == []


def test_what_was_given_up_without_an_ack_is_delivered_when_it_comes_again() -> None:
    world = World()
    first = identity(world.a.memory._wmd_prefix, 4711, tag_of(world.b.state.cookie))
    assert given_up(world, first, ACK_DISABLE) == []
    for _ in range(2):
        assert world.deliver(again(first), 8) == []
    assert [event.status for event in world.got] == [0]


def test_a_resend_that_comes_first_is_delivered_and_its_original_is_not() -> None:
    world = World()
    name = identity(world.a.memory._wmd_prefix, 4711, tag_of(world.b.state.cookie))
    world.deliver(again(name))
    world.deliver(name)
    world.deliver(again(name))
    assert len(world.got) == 1
    world.deliver(identity(world.a.memory._wmd_prefix, 4712, b"\0\0"))
    world.deliver(again(identity(world.a.memory._wmd_prefix, 4713, b"\0\0")))
    assert len(world.got) == 2


def test_a_truncated_put_is_acknowledged_again_with_the_same_length() -> None:
    once = ReceiverGuard(lambda: 0.0, COOKIE, SECRET)
    for number, (length, acknowledged) in enumerate([(100, True), (60, True), (100, False)]):
        msg = incoming(named(number), 100)
        hdr = msg.hdr
        msg.mlength = length
        once.begins(msg)
        once.ended(msg, True, acknowledged)
        hdr.wmd = again(hdr.wmd)
        assert once.judge(hdr.wmd, HOP) is Verdict.ACKNOWLEDGE
        assert once.outcome(hdr) == [100, 60, NO_ACK][number]


def test_a_failed_put_is_sent_again_only_to_the_life_that_it_was_for() -> None:
    world = World()
    md = world.bind(threshold=2)
    world.a.put(md, world.target, 30, 1)
    _, msg = world.fabric.wire[-1]
    again_of = world.a._sender.guard
    assert again_of.is_safe(msg)
    again_of.mark(msg)
    assert again_of.identify(msg, world.peer)
    for guard in (b"??", b""):
        other = Peer(world.target)
        other.guard = guard
        assert not again_of.identify(msg, other)
    world.a.peer_restarted(world.target)
    assert world.peer.guard == b""
    world.fabric.run()


def copied() -> tuple[Fabric, LNet, Msg, list[Event]]:
    """A PUT whose path paused is under way twice: fabric, sender, copy, and what its owner is told."""
    fabric = Fabric()
    a = fabric.node("10.0.0.1@tcp", "10.1.0.1@tcp1")
    b = fabric.node("10.0.0.2@tcp", "10.1.0.2@tcp1")
    events: list[Event] = []
    target, other = Nid.parse("10.0.0.2@tcp"), Nid.parse("10.1.0.2@tcp1")
    a.peers.add(target, [other]).guard = tag_of(b.state.cookie)
    me = b.memory.me_attach(30, match_bits=1)
    b.memory.md_attach(me, bytearray(16), options=OP_PUT | MANAGE_REMOTE | TRUNCATE)
    a.put(a.memory.md_bind(b"data", events.append, threshold=2), target, 30, 1)
    ((ni, original),) = fabric.wire
    assert original.next_nid is not None
    a.path_stalled(ni, original.next_nid)
    a.tick(fabric.clock.now)
    _, copy = fabric.wire.pop()
    assert copy.copy_of is original
    return fabric, a, copy, events


@pytest.mark.requirement("snd-045")
def test_a_copy_that_fails_takes_nothing_from_its_original() -> None:
    """The path of the original only paused, and the connection that its copy took was closed."""
    fabric, a, copy, events = copied()
    a.settings.retry_count = 1
    a.completed([copy], HealthStatus.LOCAL_ERROR, errno.ECONNRESET, "the peer closed the connection")
    fabric.run()
    assert [(event.kind, event.status) for event in events] == [(EventKind.SEND, 0), (EventKind.ACK, 0)]
    assert events[-1].unlinked
    fabric.assert_conserved()


@pytest.mark.requirement("snd-045")
def test_a_put_that_left_after_its_copy_can_be_copied_once_more_when_that_fails() -> None:
    """The end of the original emptied it, and the next copy had its header without its bytes."""
    fabric, a, copy, events = copied()
    ((ni, original),) = fabric.wire
    assert original.next_nid is not None
    fabric.wire.clear()  # it is lost on the way
    a.completed([original])
    a.settings.retry_count = 1
    a.completed([copy], HealthStatus.LOCAL_ERROR, errno.ECONNRESET, "the peer closed the connection")
    a.settings.retry_count = 5
    a._sender.guard.lost(ni, original.next_nid)
    a.tick(fabric.clock.now)
    assert [b"".join(msg.payload) for _, msg in fabric.wire] == [b"data"]
    fabric.run()
    assert [event.kind for event in events] == [EventKind.SEND, EventKind.ACK]
    assert not any(event.status for event in events)
    fabric.assert_conserved()


@pytest.mark.requirement("snd-045")
def test_a_copy_that_changes_its_path_while_its_original_is_acknowledged_stays() -> None:
    """Between two paths a message is not sent: its ACK emptied it, and it left so (seed 3011269)."""
    fabric, a, copy, events = copied()
    fabric.step()  # the original arrives, and its ACK sets out
    a.take_back(copy)
    cores, fabric.cores = fabric.cores, []  # the ACK comes before what take_back has deferred
    fabric.step()
    fabric.cores = cores
    a.tick(fabric.clock.now)
    assert not fabric.wire
    fabric.run()
    assert [event.kind for event in events] == [EventKind.SEND, EventKind.ACK, EventKind.UNLINK]
    assert not any(event.status for event in events)
    fabric.assert_conserved()

"""Plain peers that push, to get the messages of another or to have them fail (docs/security.md)."""

from __future__ import annotations

import errno

import pytest

from control.discovery.test_discovery_hostile import Arriving, answer, attach, info, peer, push, put
from support.fabric import Delivery, Fabric
from ulnet.control.instance import LNet
from ulnet.core.delayed import SLOW
from ulnet.core.md import MdOption
from ulnet.core.msg import Incoming
from ulnet.core.status import HealthStatus
from ulnet.nid import LNET_PID, Net, Nid
from ulnet.wire.lnet import NO_WMD, PING_MATCH_BITS, Header, MsgType, unpack_header
from ulnet.wire.ping import NiEntry, NiStatus, PingInfo

A, A1, B, B1 = (
    Nid.parse(name) for name in ("10.0.0.1@tcp", "10.1.0.1@tcp1", "10.0.0.2@tcp", "10.1.0.2@tcp1")
)
FOE, VICTIM, SECOND = (Nid.parse(name) for name in ("10.0.0.66@tcp", "10.0.0.7@tcp", "10.1.0.7@tcp1"))


@pytest.fixture
def fabric() -> Fabric:
    return Fabric()


def pushed_by(hop: Nid, core: LNet, source: Nid, data: bytes) -> None:
    """A push that a connection of `hop` brings."""
    hdr = Header(int(MsgType.PUT), A, source, payload_length=len(data), match_bits=PING_MATCH_BITS)
    receiver = core.receiver(core.nis[A], hop)
    assert receiver.begin(hdr, Arriving(receiver, data)) == 0


class Held(Arriving):
    """The payload of a message of which only the header comes."""

    def take(self, incoming: Incoming | None, buffers: list[memoryview], mlen: int, rlen: int) -> None:
        self.incoming = incoming

    def abandon(self, incoming: Incoming) -> bool:
        return self.incoming is incoming


def half_pushed_by(hop: Nid, core: LNet, size: int = 32, wmd: bytes = NO_WMD) -> Held:
    hdr = Header(int(MsgType.PUT), A, hop, payload_length=size, match_bits=PING_MATCH_BITS, wmd=wmd)
    receiver = core.receiver(core.nis[A], hop)
    held = Held(receiver, bytes(size))
    assert receiver.begin(hdr, held) == 0
    assert held.incoming is not None
    return held


def deliver(fabric: Fabric) -> None:
    """The next message on the wire arrives; no node has a turn."""
    ni, msg = fabric.wire.popleft()
    assert msg.next_nid is not None
    target, core = fabric.nis[msg.next_nid]
    receiver = core.receiver(target, ni.nid)
    delivery = Delivery(fabric, ni, msg, target, core, receiver)
    hdr = unpack_header(msg.pack(False), 0, False)
    assert receiver.begin(hdr, delivery) == 0
    if not hdr.payload_length:
        fabric.sent(delivery)


def lie(sequence: int, *others: Nid) -> bytes:
    """The foe's NID, and those of others, which are down, so that nobody sends there."""
    entries = [NiEntry(FOE), *(NiEntry(nid, NiStatus.DOWN) for nid in others)]
    return PingInfo(0x1E, LNET_PID, sequence, entries).pack()


def at_the_foe(fabric: Fabric, a: LNet, foe: LNet, victim: Nid) -> int:
    """How many of eight messages for a node the foe gets, and of one that the foe sends in its name."""
    before = foe.stats.recv_count
    for _ in range(8):
        put(a, victim)
        fabric.run()
    opened = bytearray(8)
    me = a.memory.me_attach(9, match_bits=1, nid=victim)
    a.memory.md_attach(me, opened, None, options=MdOption.OP_PUT)
    foe.put(foe.memory.md_bind(b"EVIL", None, threshold=2), A, 9, 1)
    fabric.run()
    assert opened == bytes(8), "memory for the victim alone"
    return foe.stats.recv_count - before


def test_a_peer_is_not_taken_over_by_way_of_a_nid_that_nobody_heard(fabric: Fabric) -> None:
    """The first push took the second NID; when that went back, the victim seemed to agree to the next."""
    a, foe = fabric.node(str(A), discovery=True), fabric.node(str(FOE))
    victim = fabric.node(str(VICTIM), str(SECOND), discovery=True)
    for node in (victim, foe):
        attach(node)
    put(a, VICTIM)
    put(a, FOE)
    fabric.run()
    for sequence in (11, 12, 13):
        answer(foe, lie(sequence, SECOND, VICTIM))
        push(foe, A, lie(sequence, SECOND, VICTIM))
        fabric.run()
        fabric.clock.now += 11.0
    assert at_the_foe(fabric, a, foe, VICTIM) == 0
    assert sorted(peer(a, VICTIM).nids()) == [VICTIM, SECOND]


@pytest.mark.parametrize("discovery", [False, True], ids=["it does not push", "its pushes are refused"])
def test_a_nid_that_was_heard_stays_with_who_sent_by_it(fabric: Fabric, discovery: bool) -> None:
    """Who had only been heard was given to whoever listed it."""
    a, foe = fabric.node(str(A), discovery=True), fabric.node(str(FOE))
    victim = fabric.node(str(VICTIM), discovery=discovery)
    for node in (a, victim, foe):
        attach(node)
    if discovery:
        a.info._limits._direct._all._left = -1e6
    put(victim, A)
    fabric.run()
    a.info._limits._direct._all._left = 1e6
    answer(foe, lie(3, VICTIM))
    push(foe, A, lie(3, VICTIM))
    fabric.run()
    assert at_the_foe(fabric, a, foe, VICTIM) == 0


@pytest.mark.parametrize("nids", [(A,), (A, A1)], ids=["another net", "a net of this node"])
def test_what_others_push_in_the_name_of_a_peer_is_only_a_reason_to_ask_it(
    fabric: Fabric, nids: tuple[Nid, ...]
) -> None:
    a, foe = fabric.node(*map(str, nids), discovery=True), fabric.node(str(FOE))
    b = fabric.node(str(B), str(B1), discovery=True)
    for node in (b, foe):
        attach(node)
    put(a, B)
    fabric.run()
    says = lie(0xFFFFFFF0, B, B1)
    answer(foe, says)
    pushed_by(FOE, a, B1, says)
    fabric.run()
    assert at_the_foe(fabric, a, foe, B) == 0
    assert list(peer(a, B).nids()) == [B, B1]
    b.add_ni(Net.parse("tcp2"), Nid.parse("10.2.0.2@tcp2"))
    fabric.run()
    assert len(list(peer(a, B).nids())) == 3, "its own pushes are heard as before"


def test_pushes_in_the_name_of_a_peer_make_no_message_to_it_fail(fabric: Fabric) -> None:
    """After nine pings in a round they failed with EPROTO."""
    a, b = fabric.node(str(A), discovery=True), fabric.node(str(B), str(B1), discovery=True)
    attach(b)
    put(a, B)
    fabric.run()
    strange = info(9, FOE)
    pushed_by(FOE, a, B1, strange)
    sent = put(a, B)
    for _ in range(200):
        pushed_by(FOE, a, B1, strange)
        fabric.step()
    fabric.run()
    assert [(event.kind.name, event.status) for event in sent] == [("SEND", 0), ("ACK", 0)]


def test_what_invented_sources_push_takes_nothing_from_peers_with_a_connection(fabric: Fabric) -> None:
    a = fabric.node(str(A), discovery=True)
    for hop in range(20):
        for number in range(500):
            source = Nid.parse(f"10.{hop}.{number >> 8}.{number & 255}@tcp9")
            pushed_by(Nid.parse(f"10.0.1.{hop}@tcp"), a, source, info(2, source))
    assert a.stats.drops["more pushes than all peers may send"] > 0
    told = dict(a.stats.drops)
    pushed_by(B, a, B, info(2, B))
    pushed_by(VICTIM, a, VICTIM, info(2, VICTIM, *(Nid.parse(f"10.1.1.{n}@tcp1") for n in range(200))))
    assert dict(a.stats.drops) == told


def test_what_is_refused_is_not_taken_from_what_a_router_may_send(fabric: Fabric) -> None:
    a = fabric.node(str(A), discovery=True)
    router, behind = Nid.parse("10.0.0.9@tcp"), Nid.parse("10.9.0.1@tcp9")
    a.peers.add(behind, [])
    a.info._limits._relayed._all._left = -1e9
    for number in range(2, 42):
        source = Nid.parse(f"10.9.0.{number}@tcp9")
        pushed_by(router, a, source, info(2, source, *(Nid.parse(f"10.7.0.{n}@tcp9") for n in range(250))))
    assert a.stats.drops == {"more pushes than all peers may send": 40}
    pushed_by(router, a, behind, info(2, behind))
    assert a.stats.drops.total() == 40


def test_a_gateway_is_heard_whatever_others_push(fabric: Fabric) -> None:
    """It had told that its far net is down, and messages went on over it."""
    a, gateway = fabric.node(str(A), discovery=True), fabric.node(str(B))
    far = Nid.parse("10.7.0.1@tcp7")
    answer(gateway, PingInfo(0x1A, LNET_PID, 5, [NiEntry(B), NiEntry(far)]).pack())
    a.gateways.add(far.net, B, 1, 0)
    fabric.run()
    fabric.clock.now += 1.0
    fabric.run()
    assert peer(a, B).members[far].said_down is False
    a.info._limits._direct._all._left = -1e9
    down = PingInfo(0x1A, LNET_PID, 6, [NiEntry(B), NiEntry(far, NiStatus.DOWN)]).pack()
    push(gateway, A, down)
    fabric.run()
    assert peer(a, B).members[far].said_down is True


def test_a_push_that_is_refused_while_its_peer_is_asked_is_not_lost(fabric: Fabric) -> None:
    """The answer under way was older than the push, and the peer counted as known."""
    a, b = fabric.node(str(A), discovery=True), fabric.node(str(B), discovery=True)
    attach(b)
    put(a, B)
    fabric.run()
    a.info._limits._direct._all._left = -1e9
    a.discover(B, done=lambda error, found: None)
    a.tick(fabric.clock.now)
    deliver(fabric)
    b.tick(fabric.clock.now)  # its answer is on the wire …
    b.add_ni(B1.net, B1)
    b.tick(fabric.clock.now)  # … and its push behind it
    deliver(fabric)
    deliver(fabric)  # before there is time for the answer
    fabric.run()
    assert a.stats.drops["more pushes than all peers may send"] >= 1
    put(a, B)
    fabric.run()
    assert list(peer(a, B).nids()) == [B, B1]


@pytest.mark.parametrize("count", [1, 60, 1000])
def test_who_pushes_half_a_list_keeps_no_others_waiting(fabric: Fabric, count: int) -> None:
    """All other pushes waited, and the connections that brought them were not read."""
    a, b = fabric.node(str(A), discovery=True), fabric.node(str(B), str(B1), discovery=True)
    attach(b)
    for number in range(count):
        half_pushed_by(Nid.parse(f"10.0.{16 + (number >> 8)}.{number & 255}@tcp"), a)
    for number in range(1, 100):
        node = Nid.parse(f"10.0.4.{number}@tcp")
        pushed_by(node, a, node, info(2, node, Nid.parse(f"10.1.4.{number}@tcp1")))
    assert not a.memory.portal(0).delayed
    assert len(a.info._pushes._mds) <= 65
    fabric.run()
    assert all(len(list(peer(a, Nid.parse(f"10.0.4.{number}@tcp")).nids())) == 2 for number in range(1, 100))


def test_who_pushes_slowly_is_asked_where_others_need_the_memory(fabric: Fabric) -> None:
    a, b = fabric.node(str(A), discovery=True), fabric.node(str(B), str(B1), discovery=True)
    attach(b)
    put(a, B)
    fabric.run()
    half_pushed_by(B, a, wmd=bytes(range(16)))
    before = b.stats.recv_count
    held = [half_pushed_by(Nid.parse(f"10.0.3.{number}@tcp"), a) for number in range(64)]
    assert a.stats.drops[SLOW] == 1
    a.tick(fabric.clock.now)
    acks = [msg.next_nid for _, msg in fabric.wire if msg.hdr.type == MsgType.ACK]
    assert acks == [B]  # so that its messages, which wait for that, do not fail
    fabric.run()
    assert b.stats.recv_count > before
    for slow in held:  # the rest comes after all
        assert slow.incoming is not None
        slow.receiver.end(slow.incoming)
    assert a.stats.drops[SLOW] == 1
    assert not a.stats.drops["finalized twice"]
    assert (len(a.info._pushes._mds), a.info._pushes._coming) == (1, {})


def test_who_holds_most_half_pushes_loses_the_next(fabric: Fabric) -> None:
    """The one that began first was given up: one neighbour could have those of all others end."""
    a = fabric.node(str(A), discovery=True)
    slow, *greedy = [half_pushed_by(hop, a) for hop in (B, *[FOE] * 80)]
    assert a.stats.drops[SLOW] == 17
    assert [slow.incoming.ended for slow in (slow, *greedy) if slow.incoming is not None] == (
        [False] + [True] * 17 + [False] * 63
    )


def test_a_payload_that_never_comes_is_charged_to_who_brings_it(fabric: Fabric) -> None:
    """Half a message with an invented source made the NIDs of that peer unhealthy (spec health.md §3)."""
    a = fabric.node(str(A), discovery=True)
    far = [Nid.parse(f"10.9.0.{number}@tcp9") for number in (1, 2)]
    a.peers.add(far[0], [far[1]])
    a.peers.add(FOE, [SECOND])
    hdr = Header(int(MsgType.PUT), A, far[0], payload_length=32, match_bits=PING_MATCH_BITS)
    receiver = a.receiver(a.nis[A], FOE)
    held = Held(receiver, bytes(32))
    assert receiver.begin(hdr, held) == 0
    assert held.incoming is not None
    receiver.end(held.incoming, HealthStatus.REMOTE_ERROR, errno.EIO, "the connection broke")
    source, hop = a.peers.find_ni(far[0]), a.peers.find_ni(FOE)
    assert source is not None
    assert hop is not None
    assert (source.health, hop.health) == (1000, 900)


def test_the_buffer_that_a_long_list_needs_is_not_made_smaller_by_a_shorter_one(fabric: Fabric) -> None:
    """Both came while buffers had room for 16 NIs."""
    a = fabric.node(str(A), discovery=True)
    many = info(2, B, *(Nid.parse(f"10.1.1.{n}@tcp1") for n in range(100)))
    shorter = half_pushed_by(FOE, a, size=400)
    pushed_by(B, a, B, many)
    assert shorter.incoming is not None
    shorter.receiver.end(shorter.incoming)
    pushed_by(B, a, B, many)
    fabric.run()
    assert len(list(peer(a, B).nids())) == 101


def test_a_reply_that_claims_to_be_huge_has_little_memory_taken(fabric: Fabric) -> None:
    """A MiB for each such peer, until the ping timed out."""
    a, foe = fabric.node(str(A), discovery=True), fabric.node(str(FOE))
    for claimed in (1 << 20, 1 << 17):
        head = bytearray(PingInfo(0x1E | 0x20, LNET_PID, 2, [NiEntry(FOE)]).pack())
        head[28:32] = claimed.to_bytes(4, "little")
        answer(foe, bytes(head))
        pushed_by(FOE, a, FOE, bytes(32))  # no info: it is asked
        fabric.run()
        assert peer(a, FOE).allowance.info_size == (0 if claimed > 1 << 17 else claimed)


def test_who_answers_with_long_lists_is_not_asked_for_each_of_its_pushes(fabric: Fabric) -> None:
    """One connection that pushed 32 bytes, and answered with 4,000 NIDs, took all of a node's time."""
    a, foe = fabric.node(str(A), discovery=True), fabric.node(str(FOE))
    attach(foe)
    before = a.stats.send_count

    def asked(seconds: int) -> int:
        """For pushes that come all the time, whatever is under way."""
        count = a.stats.send_count
        for turn in range(10 * seconds):
            far = [Nid.parse(f"10.{1 + turn % 2}.{n >> 8}.{n & 255}@tcp7") for n in range(200)]
            answer(foe, info(2 + turn, FOE, *far))
            for _ in range(3):
                pushed_by(FOE, a, FOE, bytes(32))
                fabric.step()
            fabric.run()
            fabric.clock.now += 0.1
        return a.stats.send_count - count

    asked(1)
    assert len(list(peer(a, FOE).nids())) == 201  # it was asked at least once
    assert a.stats.send_count - before <= 4
    assert asked(9) == 0
    assert 1 <= asked(3) <= 3
    ended = put(a, FOE)
    fabric.run()
    assert [(event.kind.name, event.status) for event in ended] == [("SEND", 0), ("ACK", 0)]


def test_nor_for_the_pushes_of_another_that_gives_up_what_it_lists(fabric: Fabric) -> None:
    """Who listed a NID is asked again once another one has it no longer; two peers did that all the time."""
    helper = Nid.parse("10.0.0.67@tcp")
    a, foe, other = fabric.node(str(A), discovery=True), fabric.node(str(FOE)), fabric.node(str(helper))
    for core in (foe, other):
        attach(core)
    far = [Nid.parse(f"10.1.{n >> 8}.{n & 255}@tcp7") for n in range(200)]
    shared = [Nid.parse(f"10.9.0.{n}@tcp8") for n in range(60)]
    before = 0
    for turn, nid in enumerate(shared):
        answer(other, info(2 + turn, helper, nid))
        answer(foe, info(2 + turn, FOE, nid, *far))
        if not turn:
            for asked in (helper, FOE):
                put(a, asked)
                fabric.run()
            fabric.clock.now += 60
            before = a.stats.send_count
        pushed_by(helper, a, helper, info(2 + turn, helper, nid))
        fabric.run()
        fabric.clock.now += 0.1
    assert a.stats.send_count - before <= 6


def test_what_is_kept_of_who_pushes_for_others_is_bounded(fabric: Fabric) -> None:
    a = fabric.node(str(A), discovery=True)
    for number in range(1100):
        hop = Nid.parse(f"10.0.{1 + (number >> 8)}.{number & 255}@tcp")
        pushed_by(hop, a, Nid.parse("10.9.9.9@tcp9"), bytes(32))
    assert 0 < len(a.info._limits._relays) <= 1024

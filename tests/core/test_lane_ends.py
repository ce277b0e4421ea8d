"""Where the fast lane ends: what it must notice, and what it must let go of (docs/design/hot-path.md)."""

from __future__ import annotations

import pytest

from support.fabric import Fabric, Recorder
from support.lanes import A1, B1, BITS, PORTAL, A, B, FastFabric, World, lane_is_open, small_puts
from ulnet.core.cpt import CptTable, Partition, share_of_nid
from ulnet.core.event import Event, EventKind
from ulnet.core.faults import Fault, FaultKind
from ulnet.core.instance import LNet
from ulnet.core.md import TRACK_RESPONSE, Md
from ulnet.core.peer import PeerNi
from ulnet.core.selection.live import LINGER
from ulnet.core.states import PeerNiState
from ulnet.core.status import HealthStatus
from ulnet.nid import ANY_NID, LNET_PID, Nid
from ulnet.wire.lnet import Header, MsgType

OTHER_PID = LNET_PID + 1


@pytest.fixture
def world() -> World:
    world = World(True)
    world.warm()
    return world


def peer_ni(core: LNet, nid: Nid) -> PeerNi:
    pni = core.peers.find_ni(nid)
    assert pni is not None
    return pni


def request() -> Header:
    """A PUT from A that wants an answer."""
    wmd = bytes((1, *bytes(15)))
    return Header(MsgType.PUT, B, A, LNET_PID, LNET_PID, wmd=wmd, match_bits=BITS, portal=PORTAL)


# Processes -------------------------------------------------------------------------------------------


def test_each_message_goes_to_the_process_it_names(world: World) -> None:
    """Two clients on one host differ in their pid alone: the driver finds their connections by it."""
    md = world.bind(b"p" * 8)
    for pid in (LNET_PID, OTHER_PID, LNET_PID, OTHER_PID):
        world.put(md, B, PORTAL, BITS, ack=False, pid=pid)
        assert [msg.next_pid for _, msg in world.fabric.wire] == [pid]
        world.fabric.run()
    world.fabric.assert_conserved()


def test_each_answer_goes_to_the_process_that_asked(world: World) -> None:
    b = world.b
    inlet = b.inlet(b.nis[B], A)
    for number, pid in enumerate((LNET_PID, OTHER_PID, OTHER_PID, LNET_PID)):
        wmd = bytes((number + 1, *bytes(15)))
        hdr = Header(
            MsgType.PUT, B, A, LNET_PID, pid, wmd=wmd, match_bits=BITS, portal=PORTAL, payload_length=1
        )
        assert inlet.take(hdr, memoryview(b"x"), 0)
        ((_, answer),) = world.fabric.wire
        assert (answer.next_pid, answer.hdr.dest_pid) == (pid, pid)
        world.fabric.run()
    world.fabric.assert_conserved()


# What is held ----------------------------------------------------------------------------------------


def test_descriptors_keep_nothing_of_lanes_and_connections_that_are_gone(world: World) -> None:
    """Rates, health and peers change all the time, and connections come and go."""
    assert isinstance(world.fabric, FastFabric)
    md = world.bind(b"k" * 8)
    (me,) = world.b.memory.portal(PORTAL).entries()
    inbox = me.md
    assert inbox is not None
    for _ in range(20):
        world.a.settings_changed()
        for number in range(3):
            world.put(md, B, PORTAL, BITS, ack=False, hdr_data=number)
            world.fabric.run()
        world.fabric.reconnect()
    assert md.keepers is not None
    assert inbox.keepers is not None
    assert len(md.keepers) == 1
    assert not inbox.keepers
    world.a.peers.delete(B)
    assert not md.keepers


def test_an_inlet_holds_one_descriptor_at_a_time(world: World) -> None:
    memory = world.b.memory
    other = memory.me_attach(PORTAL, match_bits=BITS + 1)
    inboxes: list[Md] = []
    (me,) = [me for me in memory.portal(PORTAL).entries() if me is not other]
    assert me.md is not None
    inboxes += [me.md, memory.md_attach(other, bytearray(64), options=me.md.options)]
    md = world.bind(b"k" * 8)
    for bits in (BITS, BITS + 1, BITS, BITS + 1):
        world.put(md, B, PORTAL, bits, ack=False)
        world.fabric.run()
    assert [len(inbox.keepers or ()) for inbox in inboxes] == [0, 1]


def test_a_lane_that_was_replaced_holds_nothing(world: World) -> None:
    mine = bytearray(64)
    md = world.a.memory.md_bind(mine, None)
    for _ in range(3):
        world.put(md, B, PORTAL, BITS, ack=False)
    old = [msg.lane for _, msg in world.fabric.wire]
    assert old[-1] is not None
    world.a.settings_changed()
    world.put(world.bind(b"other"), B, PORTAL, BITS, ack=False)
    world.fabric.run()
    world.a.memory.md_unlink(md)
    del md
    mine.extend(b"more")  # as long as anyone has a view of it, its size is fixed
    world.fabric.assert_conserved()


def test_nothing_holds_memory_that_was_unlinked_with_messages_under_way(world: World) -> None:
    mine = bytearray(64)
    md = world.a.memory.md_bind(mine, None)
    for _ in range(4):
        world.put(md, B, PORTAL, BITS, ack=False)
    world.a.memory.md_unlink(md)
    world.fabric.run()
    assert not md.linked
    del md
    mine.extend(b"more")


# Time ------------------------------------------------------------------------------------------------


def test_no_answer_comes_before_its_question(world: World) -> None:
    """A program asks again from its ACKs, and more of them came in the same read."""
    a, clock = world.a, world.fabric.clock
    peer_ni(a, B).peer.guard = b""  # as a kernel node has none: its ACKs have the plain handle

    def asks_again(event: Event) -> None:
        clock.now += 1.0
        if event.kind is EventKind.ACK:
            world.put(md, B, PORTAL, BITS)

    md = a.memory.md_bind(b"a" * 8, asks_again, options=TRACK_RESPONSE)
    for _ in range(3):
        world.put(md, B, PORTAL, BITS)
    inlet = a.inlet(a.nis[A], B)
    ack = Header(MsgType.ACK, A, B, LNET_PID, LNET_PID, wmd=a.memory.wmd_of(md), match_bits=BITS, length=8)
    for _ in range(3):
        assert inlet.take(ack, memoryview(b""), 0)
    inlet.settle()
    latency = a.nis[A].latency_ack
    assert latency.min >= 0


# What is noticed -------------------------------------------------------------------------------------


def test_who_failed_is_heard_on_a_connection_that_still_works(world: World) -> None:
    """A peer of one NID keeps its health, so no choice is void; but its state shows what becomes of it."""
    small_puts(world, 4)
    b, pni = world.b, peer_ni(world.b, A)
    b.health.broken(b.nis[B], pni, HealthStatus.REMOTE_ERROR)
    states = [pni.state]
    small_puts(world, 1)
    states.append(pni.state)
    assert states == [PeerNiState.FAILED, PeerNiState.CONNECTED]


def test_a_lane_opens_again_when_its_peer_is_well(world: World) -> None:
    a, pni = world.a, peer_ni(world.a, B)
    a.health.broken(a.nis[A], pni, HealthStatus.REMOTE_ERROR)
    assert not lane_is_open(world)
    small_puts(world, 1)  # it is well once that has left
    small_puts(world, 1)
    assert lane_is_open(world)


def test_a_lane_opens_again_when_nobody_follows_the_traffic(world: World) -> None:
    world.a.selector.follow(True)
    small_puts(world, 2)
    assert not lane_is_open(world)
    world.fabric.clock.now += LINGER + 1
    small_puts(world, 3)
    assert world.a.selector.trace is None
    assert lane_is_open(world)


def test_a_lane_opens_again_when_the_fault_rules_are_gone(world: World) -> None:
    world.a.faults.add(Fault(FaultKind.DROP, A1, B1, rate=2))
    small_puts(world, 2)
    assert not lane_is_open(world)
    world.a.faults.delete(FaultKind.DROP)
    small_puts(world, 3)
    assert lane_is_open(world)


def test_an_answer_leaves_by_another_way_if_a_handler_closed_the_one_it_came_by(world: World) -> None:
    world.b.add_ni(B1.net, B1)
    world.a.add_ni(A1.net, A1)
    world.fabric.run()
    b = world.b
    (me,) = b.memory.portal(PORTAL).entries()
    assert me.md is not None
    inlet = b.inlet(b.nis[B], A)
    hdr = request()
    assert inlet.take(hdr, memoryview(b""), 0)  # from now on it has a lane for answers
    world.fabric.run()
    me.md.handler = lambda event: b.del_ni(B)
    assert inlet.take(hdr, memoryview(b""), 0)
    left = [(ni.nid, msg.hdr.src_nid) for ni, msg in world.fabric.wire if msg.hdr.type == MsgType.ACK]
    assert left == [(B1, B1)]
    world.fabric.run()
    world.fabric.assert_conserved()


def test_a_fault_rule_of_a_handler_strikes_the_answer_to_the_same_message(world: World) -> None:
    b = world.b
    (me,) = b.memory.portal(PORTAL).entries()
    assert me.md is not None
    inlet = b.inlet(b.nis[B], A)
    hdr = request()
    assert inlet.take(hdr, memoryview(b""), 0)
    world.fabric.run()
    fault = Fault(FaultKind.DROP, ANY_NID, ANY_NID, rate=1, health=1 << HealthStatus.LOCAL_DROPPED)
    rules = []
    me.md.handler = lambda event: rules.append(b.faults.add(fault))
    assert inlet.take(hdr, memoryview(b""), 0)
    assert not world.fabric.wire
    assert [rule.count for rule in rules] == [1]
    world.fabric.run()


def test_what_waits_for_a_peer_finds_the_queue_of_its_new_cpt() -> None:
    """All messages to one next hop share a queue, whatever CPTs the NI is given meanwhile."""
    cpts = CptTable([Partition((0,), (0,)), Partition((1,), (0,))], {(0, 0): 10})
    fabric = Fabric()
    a = fabric.node(str(A), cpts=cpts, discovery=True)
    # A next hop whose queue is not the first.
    nid = next(one for number in range(9, 40) if share_of_nid(one := Nid.parse(f"10.0.0.{number}@tcp"), 2))
    b = fabric.node(str(nid), discovery=True)
    me = b.memory.me_attach(PORTAL, match_bits=BITS)
    b.memory.md_attach(me, bytearray(64), options=0x5)
    a.set_cpts(A, [0])
    got = Recorder()
    md = a.memory.md_bind(b"c" * 8, got, cpt=0)
    for _ in range(3):
        a.put(md, nid, PORTAL, BITS, ack=False)
        fabric.run()
    lane = peer_ni(a, nid).lane
    assert lane is not None
    for _ in range(20):
        a.put(md, nid, PORTAL, BITS, ack=False)
    assert peer_ni(a, nid).tx_queue[-1].lane is lane
    a.set_cpts(A, None)
    first, second = a.nis[A].tx_queues
    credits = first.credits
    fabric.step()
    assert first.credits == credits
    assert second.credits < credits
    fabric.run()
    assert len(got) == 23
    fabric.assert_conserved()


# What is not shared ----------------------------------------------------------------------------------


def test_a_master_that_names_a_message_changes_that_one_alone(world: World) -> None:
    """A header of a lane belongs to several messages; a master may know that its peer keeps identities."""
    a = world.a
    peer_ni(a, B).peer.guard = b""
    md = world.bind(b"i" * 8)
    for _ in range(2):
        world.put(md, B, PORTAL, BITS)
    first, second = [msg for _, msg in world.fabric.wire]
    assert first.hdr is second.hdr
    plain = second.hdr.wmd
    assert a.identify(second, b"xy")
    assert (first.hdr.wmd, md.put) == (plain, second)
    assert second.hdr.wmd != plain
    world.put(md, B, PORTAL, BITS)
    assert [msg for _, msg in world.fabric.wire][-1].hdr.wmd == plain


def test_a_message_of_the_pool_stands_for_its_present_descriptor_alone(world: World) -> None:
    """The first descriptor's PUT is over; its message carries another's by now."""
    a, pni = world.a, peer_ni(world.a, B)
    pni.peer.guard = b""
    earlier, later = world.bind(b"e" * 8), world.bind(b"l" * 8)
    world.put(earlier, B, PORTAL, BITS)
    first = world.fabric.wire[-1][1]
    world.fabric.run()
    world.put(later, B, PORTAL, BITS)
    ((_, msg),) = world.fabric.wire
    assert msg is first
    world.fabric.wire.clear()
    a.take_back(msg)
    pni.peer.guard = b"xy"  # the node there can tell repetitions now
    a.tick(world.fabric.clock.now)
    under_way = [md for md, *_ in a._transmit.again._under_way()]
    assert under_way == [later]


def test_a_put_without_ack_gets_no_name_from_one_with(world: World) -> None:
    a, pni = world.a, peer_ni(world.a, B)
    pni.peer.guard = b""
    md = world.bind(b"n" * 8)
    world.put(md, B, PORTAL, BITS)
    world.fabric.run()
    world.put(md, B, PORTAL, BITS, ack=False)
    ((_, msg),) = world.fabric.wire
    wmd = msg.hdr.wmd
    world.fabric.wire.clear()
    a.take_back(msg)
    pni.peer.guard = b"xy"
    a.tick(world.fabric.clock.now)
    assert msg.hdr.wmd == wmd
    world.fabric.run()
    world.fabric.assert_conserved()

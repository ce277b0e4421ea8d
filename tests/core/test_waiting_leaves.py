"""What waits for credits leaves a path in turns of the loop, once, and keeps its deadline."""

from __future__ import annotations

import errno

import pytest

from support.fabric import Fabric, MemLnd, Recorder
from support.rails import A0, A1, B0, B1, Rails
from ulnet.core.guard.identity import tag_of
from ulnet.core.msg import Msg
from ulnet.core.ni import NI
from ulnet.core.status import HealthStatus as S
from ulnet.core.tunables import NetTunables
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.lnet import PING_MATCH_BITS, PING_PORTAL, Header, MsgType

MOST = 64  # in a turn
MANY = 600


def filled(count: int = MANY) -> Rails:
    """So many PUTs, of which the most wait for credits of either path."""
    rails = Rails()
    for _ in range(count):
        rails.put()
    rails.ticks()
    return rails


def stands(rails: Rails) -> dict[Msg, float]:
    """What waits for credits, and since when."""
    return {msg: msg.queued_at for nid in (B0, B1) for msg in waiting(rails, nid)}


def turns(rails: Rails) -> list[int]:
    """How many set out anew, or began to wait, in each turn of the loop from now on."""
    counts = []
    while rails.a.state.work_pending:
        rails.fabric.clock.now += 1e-3
        before = stands(rails)
        rails.a.state.run_deferred()
        counts.append(sum(before.get(msg) != since for msg, since in stands(rails).items()))
    return counts


def answers(rails: Rails, count: int, nid: Nid = B0) -> None:
    """The peer asks so often, and its answers wait for credits."""
    receiver = rails.a.receiver(rails.ni(A0), nid)
    for number in range(count):
        # fmt: off
        hdr = Header(int(MsgType.GET), A0, nid, LNET_PID, LNET_PID, 0, number.to_bytes(16, "little"),
                     match_bits=PING_MATCH_BITS, portal=PING_PORTAL, length=4096)
        # fmt: on
        receiver.begin(hdr, Unread())
    rails.ticks()


class Unread:
    """Payload of what has none."""

    def take(self, *args: object) -> None: ...

    def abandon(self, incoming: object) -> bool:
        return False

    def unanswered(self) -> None: ...


def all_end_well(rails: Rails) -> None:
    """Each once, and all credits are back."""
    rails.fabric.run()
    assert len(rails.events) == MANY
    assert all(event.status == 0 for event in rails.events)
    rails.fabric.assert_conserved()


def waiting(rails: Rails, nid: Nid) -> list[Msg]:
    return list(rails.pni(nid).tx_queue)


@pytest.mark.parametrize("how", ["stalled", "told down", "failed"])
def test_so_many_set_out_anew_in_a_turn(how):
    """All did: 46,000 stopped the loop for half a second, at each failed message."""
    rails = filled()
    there = waiting(rails, B0)
    assert len(there) > 4 * MOST
    if how == "stalled":
        rails.a.path_stalled(rails.ni(A0), B0)
    elif how == "told down":
        rails.a.health.peer_told(rails.pni(B0), up=False)
    else:
        ni, msg = next(one for one in rails.fabric.wire if one[1].next_nid == B0)
        rails.fabric.wire.remove((ni, msg))
        rails.a.completed([msg], S.REMOTE_DROPPED, errno.EIO, "as the test says")
    counts = turns(rails)
    assert max(counts) <= MOST + 1  # the failed one sets out, too
    assert sum(counts) >= len(there) - 1
    assert not waiting(rails, B0)
    order = [msg for msg in waiting(rails, B1) if msg in there]
    assert order == [msg for msg in there if msg in order]
    all_end_well(rails)


def test_who_leaves_again_before_all_have_left_is_no_faster():
    rails = filled()
    for _ in range(3):
        for own, other in ((A0, B0), (A1, B1)):
            rails.a.path_stalled(rails.ni(own), other)
            rails.a.state.run_deferred()
            rails.a.state.run_deferred()
            rails.a.path_moving(rails.ni(own), other)
    assert max(turns(rails)) <= MOST
    assert len(stands(rails)) == MANY - len(rails.on_wire())
    all_end_well(rails)


def test_who_waits_for_an_ni_that_goes_meanwhile_ends_once():
    rails = filled()
    rails.a.path_stalled(rails.ni(A0), B0)
    rails.a.state.run_deferred()
    rails.a.state.run_deferred()
    rails.a.del_ni(A1)
    rails.a.state.run_deferred()
    rails.a.path_moving(rails.ni(A0), B0)
    rails.fabric.run()
    assert len(rails.events) == MANY
    assert sum(event.status == 0 for event in rails.events) >= MANY - 16  # but for what the driver had
    rails.fabric.assert_conserved()


def test_who_leaves_when_the_node_shuts_down_ends_once():
    rails = filled()
    rails.a.path_stalled(rails.ni(A0), B0)
    rails.a.state.run_deferred()
    rails.a.state.run_deferred()
    rails.a.shutdown()
    assert len(rails.events) == MANY
    rails.fabric.assert_conserved()


def test_who_leaves_keeps_its_deadline():
    """It had the whole time again, and waited for ever where paths changed often enough."""
    rails = filled(40)
    rails.pass_time(100, step=4)
    rails.a.path_stalled(rails.ni(A0), B0)
    rails.ticks()
    assert len(waiting(rails, B1)) == 24
    rails.pass_time(60, step=4)
    assert [event.status for event in rails.events] == [-errno.ETIMEDOUT] * 24
    rails.fabric.run()
    assert len(rails.events) == 40
    rails.fabric.assert_conserved()


def test_answers_that_can_go_nowhere_else_stay():
    """They left for the same path: a peer that read none made its victim move all of them."""
    rails = Rails()
    answers(rails, 200)
    there = waiting(rails, B0)
    assert len(there) == 192
    rails.put()
    since = [msg.queued_at for msg in there]
    rails.fabric.clock.now += 1
    rails.a.health.peer_told(rails.pni(B0), up=False)
    rails.a.path_stalled(rails.ni(A0), B0)
    assert waiting(rails, B0)[:192] == there
    rails.ticks()
    assert waiting(rails, B0)[:192] == there
    assert [msg.queued_at for msg in there] == since


def test_a_failure_that_changes_nothing_moves_nothing():
    """Each did, to the same dead NID."""
    rails = Rails(own=(A0,), others=(B0, B1))
    for _ in range(40):
        rails.put()
    for _ in range(10):
        rails.a.health.values.lower_peer(rails.pni(B0))
    rails.end(S.REMOTE_DROPPED)
    there = waiting(rails, B0)
    assert there
    rails.fabric.clock.now += 1
    before = [msg.queued_at for msg in there]
    rails.end(S.REMOTE_DROPPED)
    left = [msg for msg, at in zip(there, before, strict=True) if msg.queued_at != at]
    assert len(left) <= 1  # the one that had its turn


def test_only_what_has_left_is_copied():
    """A PUT that has its turn to set out anew has not left, though it is still named for the old path."""
    rails = Rails()
    rails.pni(B0).peer.guard = tag_of(rails.b.state.cookie)
    for _ in range(MANY):
        rails.put(ack=True)
    rails.ticks()
    there = waiting(rails, B0)
    left = [msg for _, msg in rails.fabric.wire if msg.next_nid == B0]
    rails.a.health.peer_told(rails.pni(B0), up=False)
    turns(rails)
    assert [msg for msg in left if not msg.copied] == []
    assert [msg for msg in there if msg.copied] == []
    rails.fabric.run()
    assert [event.status for event in rails.events if event.kind.name == "ACK"] == [0] * MANY
    rails.fabric.assert_conserved()


class Raising(MemLnd):
    """Takes what it is given, and raises for the first that goes to a NID."""

    to: Nid | None = None

    def send(self, ni: NI, msgs: list[Msg]) -> None:
        super().send(ni, msgs)
        if msgs[0].next_nid == self.to:
            self.to = None
            raise RuntimeError("a mistake in the driver")


@pytest.mark.parametrize("how", ["stalled", "other CPTs", "completed"])
def test_a_driver_that_raises_takes_nothing_from_the_others(how):
    """What had just left a queue was lost, or credits of what had ended."""
    fabric = Fabric()
    few = NetTunables(peer_credits=2, credits=2)
    own, second, far = A0, Nid.parse("10.0.0.3@tcp"), Nid.parse("10.0.0.4@tcp")
    core, events = fabric.node(), Recorder()
    driver = Raising(fabric, core)
    core.register_lnd(driver)
    for nid in (own, second):
        core.add_ni(nid.net, nid, tunables=few)
    for nid in (B0, far):
        Rails.serve(fabric.node(str(nid)), bytearray(64))
    for target, source in ((B0, own), (far, own), (far, second)):
        for _ in range(2):
            md = core.memory.md_bind(b"x", events, threshold=1)
            core.put(md, target, 5, 7, ack=False, source=source)
    assert len(core.nis[own].tx_queues[0].waiting) == 2
    assert len(core.peers.find_ni(far).tx_queue) == 2  # which the other NI could send at once
    driver.to = far
    if how == "stalled":
        core.path_stalled(core.nis[own], far)
    elif how == "other CPTs":
        core.set_cpts(own, None)
    fabric.run()
    assert driver.to is None
    assert [event.status for event in events] == [0] * 6
    told = [line for line in fabric.reports if "a mistake in the driver" in line]
    assert len(told) == 1
    fabric.reports.remove(told[0])
    fabric.assert_conserved()

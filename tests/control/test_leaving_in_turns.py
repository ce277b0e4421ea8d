"""Requests that have left by an NI which is deleted end in turns of the loop."""

from __future__ import annotations

import gc
import itertools
from collections import Counter
from collections.abc import Callable

import pytest

from support.fabric import Delivery, Fabric, MemLnd
from support.rails import Rails
from ulnet.control.instance import LNet
from ulnet.core.event import Event, EventKind
from ulnet.core.md import INFINITE, MANAGE_REMOTE, OP_GET, TRUNCATE, Md
from ulnet.core.ni import NI
from ulnet.core.tunables import NetTunables
from ulnet.nid import NetType, Nid

MOST = 64  # in a turn
MANY = 300
FAR = Nid.parse("10.0.0.2@tcp")


class Requests:
    """GETs that have left by one NI, and whose answers do not come; the peer may have another rail."""

    def __init__(self, rail: Nid | None = None) -> None:
        self.fabric = Fabric()
        self.core = self.fabric.node(
            "10.0.0.1@tcp", "10.1.0.1@tcp1", tunables=NetTunables(peer_credits=1024, credits=2048)
        )
        self.other = self.core.nis[Nid.parse("10.1.0.1@tcp1")]
        if rail is not None:
            self.core.peers.add(FAR, [rail])
            self.core.path_stalled(self.other, rail)
        self.statuses: Counter[int] = Counter()
        self.mds = [self.get() for _ in range(MANY)]
        sent = [msg for _, msg in self.fabric.wire]
        self.fabric.wire.clear()
        self.core.completed(sent)

    def get(self) -> Md:
        def told(event: Event) -> None:
            if event.kind is EventKind.REPLY:
                self.statuses[event.status] += 1

        md = self.core.memory.md_bind(bytearray(1), told, threshold=2)
        self.core.get(md, FAR, 5, 7)
        return md

    @property
    def ended(self) -> int:
        return sum(not md.linked for md in self.mds)

    def turn(self) -> None:
        self.core.tick(self.fabric.clock.now)


def lasting(core: LNet, told: Callable[[Event], None]) -> Md:
    """A descriptor that is bound anew for each request, as those of programs are."""
    md = Md([], told)
    md.lasting, md.arriving = True, []
    core.memory.rebind(md, bytearray(1), 2, 30.0)
    return md


@pytest.fixture
def requests() -> Requests:
    requests = Requests()
    requests.core.del_ni(Nid.parse("10.0.0.1@tcp"))
    return requests


@pytest.mark.requirement("cfg-020")
def test_many_requests_of_an_ni_that_is_deleted_end_in_turns_of_64(requests: Requests) -> None:
    """All did in one: 8,000 took a tenth of a second."""
    counts = [0]
    while counts[-1] < MANY:
        requests.turn()
        counts.append(requests.ended)
    turns = [after - before for before, after in itertools.pairwise(counts)]
    assert max(turns) == MOST
    assert requests.statuses == {-100: MANY}
    requests.turn()
    assert not requests.core.state.work_pending


@pytest.mark.requirement("cfg-020")
def test_what_ends_before_its_turn_is_told_once_and_what_is_sent_anew_goes_on(requests: Requests) -> None:
    while not requests.ended:
        requests.turn()
    core = requests.core
    *_, last, anew = requests.mds
    core.memory.md_unlink(last, 5)
    anew.ni = core.nis[Nid.parse("10.1.0.1@tcp1")]  # as a PUT that is sent again
    while core.state.work_pending:
        requests.turn()
    assert [md for md in requests.mds if md.linked] == [anew]
    assert requests.statuses == {-5: 1, -100: MANY - 2}


@pytest.mark.requirement("cfg-020")
@pytest.mark.parametrize("drained", [False, True])
def test_an_answer_is_awaited_for_a_moment_where_another_ni_is_open(drained: bool) -> None:
    """A peer uses none that was drained: nothing comes by that."""
    requests = Requests(Nid.parse("10.1.0.2@tcp1"))
    core = requests.core
    core.leaving.keep([requests.other], drained)
    core.del_ni(Nid.parse("10.0.0.1@tcp"))
    while core.state.work_pending:
        requests.turn()
    assert requests.ended == (MANY if drained else 0)


@pytest.mark.requirement("cfg-020")
def test_a_descriptor_that_is_bound_anew_before_its_turn_belongs_to_another_request() -> None:
    """That ended with the NI of the one before, though it had not left yet."""
    fabric = Fabric()
    many = NetTunables(peer_credits=1024, credits=2048)
    core = fabric.node("10.0.0.1@tcp", "10.1.0.1@tcp1", tunables=many, discovery=True)
    core.discovery.stop()
    ended: list[int] = []
    mds = [lasting(core, lambda event: ended.append(event.status)) for _ in range(MANY)]
    for md in mds:
        core.get(md, FAR, 5, 7)
    sent = [msg for _, msg in fabric.wire]
    fabric.wire.clear()
    core.completed(sent)
    core.del_ni(Nid.parse("10.0.0.1@tcp"))
    while -100 not in ended:
        core.tick(fabric.clock.now)
    core.discovery.start()
    md = mds[-1]
    assert md.linked
    core.reclaim(md)
    ended.clear()
    core.memory.rebind(md, bytearray(1), 2, 30.0)
    core.get(md, Nid.parse("10.1.0.2@tcp1"), 5, 7)
    handle = md.handle
    for _ in range(20):
        core.tick(fabric.clock.now)
    assert (md.linked, md.aborted, md.handle) == (True, 0, handle)


@pytest.mark.requirement("cfg-020")
def test_a_request_whose_descriptor_was_given_back_before_its_answer_came_ends_as_well() -> None:
    """The answer that was due then counted for the next request, too, which seemed to wait for two."""
    fabric = Fabric()
    core = fabric.node("10.0.0.1@tcp")
    ended: list[int] = []
    md = lasting(core, lambda event: ended.append(event.status))
    for again in (True, False):
        core.get(md, FAR, 5, 7)
        sent = [msg for _, msg in fabric.wire]
        fabric.wire.clear()
        core.completed(sent)
        assert md.replies_due == 1
        if again:
            core.reclaim(md)
            core.memory.rebind(md, bytearray(1), 2, 30.0)
    core.del_ni(Nid.parse("10.0.0.1@tcp"))
    for _ in range(5):
        core.tick(fabric.clock.now)
    assert -100 in ended
    assert not md.linked


@pytest.mark.requirement("cfg-020")
def test_a_descriptor_that_serves_many_outlives_a_request_that_is_answered_before_its_turn() -> None:
    """It ended though nothing was due any more, and was gone for the next request."""
    fabric = Fabric()
    many = NetTunables(peer_credits=1024, credits=2048)
    core = fabric.node("10.0.0.1@tcp", "10.1.0.1@tcp1", tunables=many)
    far = fabric.node("10.0.0.2@tcp", "10.1.0.2@tcp1", tunables=many)
    own, second = Nid.parse("10.0.0.1@tcp"), Nid.parse("10.1.0.2@tcp1")
    core.peers.add(FAR, [second])
    entry = far.memory.me_attach(5, match_bits=7)
    options = OP_GET | MANAGE_REMOTE | TRUNCATE
    far.memory.md_attach(entry, bytearray(1), lambda event: None, options=options)
    events: list[Event] = []
    mds = [core.memory.md_bind(bytearray(1), events.append, threshold=INFINITE) for _ in range(MANY)]
    for md in mds:
        core.get(md, FAR, 5, 7, source=own)
    while any(msg.md in mds for _, msg in fabric.wire):
        fabric.step()
    replies = {msg.wmd: msg for _, msg in fabric.wire}
    fabric.wire.clear()
    core.del_ni(own)
    core.tick(fabric.clock.now)
    fabric.clock.now += 1.1  # the grace is over
    core.tick(fabric.clock.now)
    assert sum(not md.linked for md in mds) == MOST
    answered = mds[-1]
    reply, target = replies[answered.wmd], core.nis[Nid.parse("10.1.0.1@tcp1")]
    hdr = reply.hdr.copy()
    hdr.wmd, hdr.src_nid, hdr.dest_nid = reply.wmd, second, target.nid
    receiver = core.receiver(target, second)
    assert receiver.begin(hdr, Delivery(fabric, far.nis[second], reply, target, core, receiver)) == 0
    assert answered.replies_due == 0
    while core.state.work_pending:
        core.tick(fabric.clock.now)
    told = [(event.kind, event.status) for event in events if event.md is answered]
    assert told == [(EventKind.SEND, 0), (EventKind.REPLY, 0)]
    assert [md for md in mds if md.linked] == [answered]


class Bonds(MemLnd):
    """Bonding NIs, as far as the core knows them."""

    name = "bond"
    net_type = int(NetType.BOND)


@pytest.mark.requirement("cfg-020")
def test_what_only_waited_for_credits_of_a_bonding_ni_goes_on_by_another_one() -> None:
    """Its request ended before it had its turn to set out anew, though its peer got it, and answered."""
    fabric = Fabric()
    far = Nid.parse("10.0.0.2@bond0")
    cores = [fabric.node() for _ in range(2)]
    for core, nids in zip(cores, (("10.0.0.1@bond0", "10.0.0.9@bond0"), (str(far),)), strict=True):
        core.register_lnd(Bonds(fabric, core))
        for nid in map(Nid.parse, nids):
            core.add_ni(nid.net, nid)
    core = cores[0]
    Rails.serve(cores[1], bytearray(64))
    ends: Counter[tuple[EventKind, int]] = Counter()
    for _ in range(MANY):
        md = core.memory.md_bind(b"x", lambda event: ends.update([(event.kind, event.status)]), threshold=2)
        core.put(md, far, 5, 7, source=None)
    pni = core.peers.find_ni(far)
    assert pni is not None
    waiting = list(pni.tx_queue)
    assert len(waiting) > 4 * MOST
    had = [ni for ni, _ in fabric.wire]
    assert {ni.nid for ni in had} == {msg.ni.nid for msg in waiting if msg.ni}  # all are by one NI
    core.del_ni(had[0].nid)
    fabric.run()
    assert ends[EventKind.SEND, 0] == ends[EventKind.ACK, 0] == len(waiting)
    assert len(had) == MANY - len(waiting)
    fabric.assert_conserved()


def test_an_ni_that_is_deleted_is_not_kept() -> None:
    """Its time for late answers kept it until another one was deleted."""
    fabric = Fabric()
    own = Nid.parse("10.0.0.1@tcp")
    core = fabric.node(str(own), "10.1.0.1@tcp1")
    core.del_ni(own)
    fabric.run()
    fabric.all_nis.clear()
    gc.collect()
    assert [one for one in gc.get_objects() if isinstance(one, NI) and one.nid == own] == []

"""Messages that waited until their peer was known go on in turns of the loop, in order."""

from __future__ import annotations

import errno
from itertools import pairwise

import pytest

from support.fabric import Fabric
from support.rails import Rails
from ulnet.control.instance import LNet
from ulnet.core.event import Event, EventKind
from ulnet.core.md import MdOption
from ulnet.core.peer import Peer
from ulnet.core.tunables import NetTunables
from ulnet.nid import Nid

A, B, B1 = Nid.parse("10.0.0.1@tcp"), Nid.parse("10.0.0.2@tcp"), Nid.parse("10.0.0.12@tcp")
MOST = 64  # in a turn
MANY = 400


class Crowd:
    """Many PUTs that wait until `b` is known, which it just is: the first have gone on."""

    def __init__(self) -> None:
        self.fabric = Fabric()
        many = NetTunables(peer_credits=4096, credits=8192)  # so that all are on the wire as they set out
        self.a = self.fabric.node(str(A), discovery=True, tunables=many)
        self.b = self.fabric.node(str(B), str(B1), discovery=True)
        self.arrived: list[int] = []
        self.ended: list[int] = []
        self.sink(self.b)
        for _ in range(MANY):
            self.put()
        assert len(self.peer.parked) == MANY
        while len(self.peer.parked) == MANY:
            self.fabric.step()

    def sink(self, core: LNet) -> None:
        entry = core.memory.me_attach(5, match_bits=7)
        options = int(MdOption.OP_PUT | MdOption.MANAGE_REMOTE | MdOption.TRUNCATE)
        core.memory.md_attach(
            entry, bytearray(64), lambda event: self.arrived.append(event.hdr_data), options=options
        )

    count = 0

    def put(self, target: Nid = B) -> None:
        def told(event: Event) -> None:
            if event.kind is EventKind.SEND:
                self.ended.append(event.status)

        md = self.a.memory.md_bind(b"x", told, threshold=1)
        self.a.put(md, target, 5, 7, ack=False, hdr_data=self.count)
        self.count += 1

    @property
    def peer(self) -> Peer:
        found = self.a.peers.find(B)
        assert found is not None
        return found

    def turn(self) -> None:
        self.a.tick(self.fabric.clock.now)

    def all_arrive(self, in_order: bool = True) -> None:
        """Each once, in the order in which they were sent, unless some are sent again."""
        for _ in range(20):
            self.fabric.run()
            self.fabric.clock.now += 1.0
        assert self.ended == [0] * self.count
        assert (self.arrived if in_order else sorted(self.arrived)) == list(range(self.count))
        assert not any(one.parked or one.going for one in self.a.peers)
        self.fabric.assert_conserved()


@pytest.fixture
def crowd() -> Crowd:
    return Crowd()


@pytest.mark.requirement("dyn-020")
def test_so_many_go_on_in_a_turn_and_are_not_overtaken(crowd: Crowd) -> None:
    """All did in one: 16,000 stopped the loop for a tenth of a second."""
    left = [MANY, len(crowd.peer.parked)]
    while crowd.peer.parked:
        crowd.turn()
        left.append(len(crowd.peer.parked))
        crowd.put()  # behind the others
    assert max(before - after for before, after in pairwise(left)) <= MOST
    assert crowd.count > MANY + 3
    crowd.all_arrive()
    assert crowd.peer.settled


def test_two_crowds_have_their_turns_together() -> None:
    crowd = Crowd()
    other = Nid.parse("10.0.0.3@tcp")
    Rails.serve(crowd.fabric.node(str(other), discovery=True), bytearray(64))
    for _ in range(MANY):
        crowd.put(other)
    before = 0
    while crowd.fabric.step():
        parked = sum(len(one.parked) for one in crowd.a.peers)
        assert before - parked <= MOST
        before = parked
    assert crowd.ended == [0] * (2 * MANY)
    assert crowd.arrived == list(range(MANY))


def test_a_node_that_ends_meanwhile_ends_them(crowd: Crowd) -> None:
    crowd.a.shutdown()
    assert len(crowd.ended) == MANY
    assert set(crowd.ended) <= {-errno.ESHUTDOWN, -errno.ENETDOWN, -errno.EHOSTUNREACH}
    assert crowd.a.stats.msgs_alloc == 0


@pytest.mark.parametrize("turns", range(4))
@pytest.mark.parametrize("what", ["deleted", "made", "began anew", "tells of others", "lost a NID", "off"])
def test_nothing_is_lost_whatever_becomes_of_the_peer(crowd: Crowd, what: str, turns: int) -> None:
    for _ in range(turns):
        crowd.turn()
    a, peer = crowd.a, crowd.peer
    assert peer.parked
    if what == "deleted":
        a.peers.delete(peer.primary_nid)
    elif what == "made":
        a.peers.add(B1, [B])
    elif what == "began anew":
        a.peer_restarted(B)
    elif what == "tells of others":
        crowd.b.add_ni(B.net, Nid.parse("10.0.0.22@tcp"))
    elif what == "lost a NID":
        crowd.b.del_ni(B1)
    else:
        a.set_discovery(0)
    for _ in range(3):
        crowd.put()
        crowd.turn()
    crowd.all_arrive(in_order=what != "lost a NID")


def test_who_has_waited_goes_on_though_the_peer_cannot_be_asked_again(crowd: Crowd) -> None:
    """They failed with those that were sent while it was asked anew."""
    crowd.put()
    crowd.a.discovery._end(crowd.peer, errno.EHOSTUNREACH, "as the test says")
    crowd.fabric.run()
    assert crowd.ended.count(0) == MANY
    assert len(crowd.ended) == MANY + 1
    assert crowd.arrived == list(range(MANY))

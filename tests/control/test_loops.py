"""Routes that lead back: they are found by this node's own probes, and by nothing that others can send."""

from __future__ import annotations

import pytest

from support.fabric import Fabric
from support.stream import NO_PAYLOAD
from ulnet.control.instance import LNet
from ulnet.core.msg import Msg
from ulnet.core.routing.table import Route
from ulnet.nid import Net, Nid
from ulnet.wire.lnet import Header, MsgType, unpack_header

FAR = Net.parse("tcp2")
NEAR, BETWEEN = Nid.parse("10.0.0.1@tcp"), Nid.parse("10.1.0.1@tcp1")
FOE, THERE = Nid.parse("10.0.0.66@tcp"), Nid.parse("10.2.0.66@tcp2")
GET = int(MsgType.GET)
WAY_ROUND = 6.0  # seconds: longer than a probe takes


class Router:
    """A router between two nets, with routes over others to a third, and all that it sends there."""

    def __init__(self, routes: int) -> None:
        self.fabric = Fabric()
        self.core: LNet = self.fabric.node(str(NEAR), str(BETWEEN))
        self.core.router.enable(True)
        for number in range(routes):
            self.core.gateways.add(FAR, Nid.parse(f"10.1.0.{number + 2}@tcp1"), 2, 0)
        self.routes: list[Route] = list(self.core.gateways.table)
        self.core.gateways.checks._watched.clear()

    def comes(self, hdr: Header, by: Nid = FOE, to: Nid = NEAR) -> None:
        """A message comes to be passed on."""
        self.core.receiver(self.core.nis[to], by).begin(hdr, NO_PAYLOAD)

    def forged(self, source: Nid, dest: Nid = THERE) -> None:
        self.comes(Header(int(MsgType.PUT), dest, source, portal=9))

    def sent(self) -> list[Msg]:
        """What leaves; all of it arrives, and nothing is answered."""
        for _ in range(3):
            self.core.tick(self.fabric.clock.now)
        found = [msg for _, msg in self.fabric.wire]
        self.fabric.wire.clear()
        self.core.completed(found)
        return found

    def probes(self) -> list[Msg]:
        return [msg for msg in self.sent() if msg.hdr.type == GET and msg.hdr.dest_nid.net == FAR]

    def goes_round(self, looping: set[Nid]) -> int:
        """All that was sent over these gateways comes back by another router; how many messages did."""
        back = [msg for msg in self.sent() if msg.next_nid in looping and msg.hdr.dest_nid.net == FAR]
        for msg in back:
            self.comes(echoed(msg), by=Nid.parse("10.1.0.99@tcp1"), to=BETWEEN)
        return len(back)

    def later(self, seconds: float) -> None:
        self.fabric.clock.now += seconds
        self.core.tick(self.fabric.clock.now)

    @property
    def down(self) -> list[str]:
        return [self.core.gateways.why_down(route) for route in self.routes]


def echoed(msg: Msg) -> Header:
    """The header of a message, as anybody can send it again who has seen it."""
    return unpack_header(msg.pack(False), 0, False)


@pytest.mark.requirement("RTR")
@pytest.mark.parametrize("routes", [1, 3])
def test_a_message_in_the_router_s_own_name_shuts_no_route(routes: int) -> None:
    """One such header made a router believe in a loop, and cut a net off for a minute for everybody."""
    router = Router(routes)
    for _ in range(2 * routes):
        router.forged(Nid.parse("10.9.0.5@tcp9"))  # as if another router had sent it: a probe begins
        router.sent()
        router.forged(NEAR)
        router.later(WAY_ROUND)
    assert router.down == [""] * routes


@pytest.mark.requirement("RTR")
@pytest.mark.parametrize("first", [NEAR, Nid.parse("10.9.0.5@tcp9")], ids=str)
def test_who_is_where_a_probe_goes_cannot_bring_it_back(first: Nid) -> None:
    """Somebody at the destination, which the sender chose, tells all of a probe to one near the router."""
    router = Router(1)
    router.forged(first)
    (probe,) = router.probes()
    assert probe.hdr.dest_nid == THERE
    router.comes(echoed(probe))
    (second,) = router.probes()
    assert second.hdr.dest_nid != THERE
    assert second.next_nid == probe.next_nid
    for dest in (THERE, Nid.parse("10.2.0.67@tcp2")):
        hdr = echoed(probe)
        hdr.dest_nid, hdr.wmd = dest, echoed(second).wmd  # handles can be guessed by who knows the one before
        router.comes(hdr)
    assert router.down == [""]
    router.later(WAY_ROUND)
    assert router.down == [""]


@pytest.mark.requirement("RTR")
@pytest.mark.parametrize("source", [NEAR, BETWEEN, Nid.parse("10.9.0.5@tcp9")], ids=str)
def test_a_loop_is_found_among_routes_that_lead_there(source: Nid) -> None:
    """By what another router sent on, and by what this node sent itself, for a minute at a time."""
    router = Router(3)
    bad = router.routes[1]
    for _ in range(9):
        router.forged(source)
        while router.goes_round({bad.gateway}):
            pass
        router.later(WAY_ROUND)
    assert router.down == ["", "routing loop", ""]
    assert (
        sum("routing loop: what goes to tcp2 over" in line for line in map(str, router.fabric.reports)) == 1
    )
    router.later(60.0)
    assert router.down == ["", "", ""]


def test_a_node_that_shuts_down_while_it_probes_keeps_nothing() -> None:
    router = Router(1)
    router.forged(NEAR)
    assert router.probes()
    router.core.shutdown()
    router.fabric.run()
    router.fabric.assert_conserved()

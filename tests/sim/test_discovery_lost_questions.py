"""Pings and pushes of discovery that are lost with their connection are begun anew, and hold no message."""

from __future__ import annotations

from functools import partial

import pytest

from support.resets import reset
from ulnet.sim import LinkParams, Simulation
from ulnet.sim.foreign import Heard, SingleRailNode
from ulnet.sim.traffic import Operation
from ulnet.wire.lnet import PING_PORTAL, MsgType
from ulnet.wire.ping import Feature, NiEntry, NiStatus, PingInfo

B = "10.0.0.2@tcp"
STEPS = range(60)


def ended(sim: Simulation, puts: list[Operation]) -> None:
    sim.run_until(lambda: all(put.ended for put in puts), 10)


@pytest.mark.requirement("dyn-020")
@pytest.mark.parametrize("guard", [True, False], ids=["guard", "no guard"])
@pytest.mark.parametrize("rails", [1, 3])
@pytest.mark.parametrize(("delay", "step"), [(5e-5, 2e-5), (2e-3, 5e-4)], ids=["near", "far"])
def test_a_connection_lost_while_a_peer_is_met_holds_no_message(
    delay: float, step: float, rails: int, guard: bool
) -> None:
    """The connections break once, at one of the moments of the first ping, push and message."""
    for number in STEPS:
        sim = Simulation(seed=number, link=LinkParams(rate=1e8, delay=delay))
        a, b = (sim.node("ab"[k], *[f"10.{r}.0.{k + 1}@tcp{r or ''}" for r in range(rails)]) for k in (0, 1))
        b.core.state.guards = guard
        b.core.info.rebuild()
        b.attach(30)
        a.put(B, 30, data=b"first")
        sim.run(number * step)
        reset(b)
        sim.run(1.0)
        puts = [a.put(B, 30, data=b"later") for _ in range(4)]
        ended(sim, puts)
        assert [(number, put.reason) for put in puts if not put.ok] == []
        assert [b.inboxes[0].times[put.number] for put in puts] == [1] * len(puts)


class Resetting(SingleRailNode):
    """A node with several rails that hangs up at each push, or at each ping."""

    at = MsgType.PUT
    hung_up = 0
    most = 1000
    lives = False  # another one at each connection

    def info(self) -> PingInfo:
        """It wants to be told the NIDs of others."""
        features = Feature.NI_STATUS | Feature.MULTI_RAIL | Feature.DISCOVERY
        entries = [NiEntry(nid, NiStatus.UP) for nid in self.nids]
        return PingInfo(int(features), 12345, 7, entries)

    def _answer(self, heard: Heard) -> None:
        if heard.hdr.type == self.at and self.hung_up < self.most:
            self.hung_up += 1
            reset(self)
            self.host.deaths += self.lives
        else:
            super()._answer(heard)
            if heard.hdr.type == MsgType.PUT and heard.hdr.portal == PING_PORTAL:
                ack = self._response(heard, MsgType.ACK)
                ack.length = len(heard.payload)
                self.send(heard.at, heard.source, ack)


@pytest.mark.parametrize("at", [MsgType.GET, MsgType.PUT], ids=["ping", "push"])
@pytest.mark.parametrize("lives", [False, True], ids=["one life", "another life each time"])
def test_a_peer_that_always_hangs_up_is_asked_a_few_times(at: MsgType, lives: bool) -> None:
    """Pings to one that was another node each time were not counted, and messages to it waited for ever."""
    sim = Simulation(seed=3)
    a = sim.node("a", "10.0.0.1@tcp", "10.1.0.1@tcp1")
    b = sim._keep(Resetting("b", *sim._host("b", [B])))
    b.at, b.lives = at, lives
    for times in (8, 16):
        put = a.put(B, 30, data=b"x")
        ended(sim, [put])
        assert not put.ok
        assert (
            put.reason == f"{B} could not be discovered: its connections break before it answers: see its log"
        )
        assert b.hung_up <= times  # one of the eight is the ping, where it hangs up at pushes
    sim.run(20.0)
    assert b.hung_up < 40  # recovery asks, too


@pytest.mark.parametrize("hang_ups", [1, 3, 100])
@pytest.mark.parametrize("why", ["forced", "router", "off"])
def test_a_push_whatever_the_peer_knows_is_sent_again(why: str, hang_ups: int) -> None:
    """It was held to be a copy of what the peer has, so that one lost was none that is needed."""
    sim = Simulation(seed=3)
    a = sim.node("a", "10.0.0.1@tcp", "10.1.0.1@tcp1")
    b = sim._keep(Resetting("b", *sim._host("b", [B])))
    b.at = MsgType.ACK  # at none
    put = a.put(B, 30, data=b"x")
    ended(sim, [put])
    b.heard.clear()
    b.at, b.most = MsgType.PUT, hang_ups
    discovery, peer = a.core.discovery, a.core.peers.find(b.nid)
    assert peer is not None and peer.pushed_sequence == a.core.info.sequence
    if why == "forced":
        a.loop.enter(partial(discovery.discover, b.nid, force=True, done=lambda error, found: None))
    elif why == "router":
        a.loop.enter(discovery.push_anyway, peer)
    else:
        a.loop.enter(a.core.set_discovery, 0)
    sim.run(10.0)
    pushes = sum(heard.hdr.type == MsgType.PUT for heard in b.heard)
    if hang_ups < 8:
        assert pushes == hang_ups + 1
    else:
        assert 7 <= pushes <= 8
    assert not peer.exchanges

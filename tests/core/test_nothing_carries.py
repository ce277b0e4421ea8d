"""A request that no NI can carry fails at once, in words that name the NI; nobody else is blamed."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from support.fabric import Fabric, Recorder
from support.rails import A0, A1, B0, B1, Rails
from ulnet.core.lnd import NiEvent
from ulnet.core.peer import PeerFlag
from ulnet.core.status import HealthStatus, LNetError
from ulnet.nid import Net, Nid


def failed(rails: Rails, *nids: Nid) -> None:
    for nid in nids:
        rails.a.ni_event(rails.ni(nid), NiEvent.FATAL)


def end_of(rails: Rails) -> tuple[int, str]:
    """How the one message asked for has ended; nothing went to a driver."""
    assert rails.on_wire(pings=False) == []
    (event,) = rails.events
    rails.fabric.assert_conserved()
    assert rails.pni(B0).health == rails.pni(B1).health == 1000
    return event.status, event.reason


@pytest.mark.requirement("snd-080", "snd-070")
@pytest.mark.parametrize("ack", [False, True])
def test_from_an_ni_that_is_down(ack: bool) -> None:
    rails = Rails()
    failed(rails, A0)
    rails.put(B0, source=A0, ack=ack)
    status, reason = end_of(rails)
    assert status == -errno.ENETDOWN
    assert reason == f"source NID {A0} is down: its device failed; leave the source out, or mend the device"
    with pytest.raises(LNetError, match=f"source NID {A0} is down") as refusal:
        rails.a.explain(B0, source=A0)
    assert refusal.value.errno == errno.ENETDOWN
    assert rails.a.explain(B0).ni is rails.ni(A1)


@pytest.mark.requirement("snd-080")
def test_a_ping_from_an_ni_that_is_down() -> None:
    rails = Rails()
    failed(rails, A0)
    md = rails.a.memory.md_bind(bytearray(272), rails.events, threshold=2)
    rails.a.get(md, B0, 0, 1 << 63, source=A0)
    status, reason = end_of(rails)
    assert (status, reason[: len(str(A0)) + 11]) == (-errno.ENETDOWN, f"source NID {A0}")


@pytest.mark.requirement("snd-080")
def test_to_a_peer_without_multi_rail_that_hears_from_an_ni_that_is_down() -> None:
    second = Nid.parse("10.0.0.3@tcp")
    rails = Rails((A0, second), multi_rail=False)
    rails.put()
    known = rails.end(HealthStatus.OK)[0]
    rails.events.clear()
    failed(rails, known.nid)
    rails.put()
    status, reason = end_of(rails)
    assert status == -errno.ENETDOWN
    words = f"{B0} is a peer without Multi-Rail, which hears from {known.nid} only: that is down"
    assert reason.startswith(words)
    with pytest.raises(LNetError, match="which hears from"):
        rails.a.explain(B0)
    rails.a.ni_event(known, NiEvent.RECOVERED)
    rails.put()
    assert rails.end(HealthStatus.OK)[0] is known


@pytest.mark.requirement("snd-080")
@pytest.mark.parametrize("known", [False, True], ids=["unknown", "discovered"])
@pytest.mark.parametrize("ack", [False, True])
def test_when_all_nis_are_down(ack: bool, known: bool) -> None:
    """Decisions about peers that were discovered are kept, that there is no way as well."""
    rails = Rails()
    if known:
        rails.pni(B0).peer.mark(int(PeerFlag.DISCOVERED | PeerFlag.NIDS_UPTODATE))
        rails.put(ack=ack)
        assert rails.end(HealthStatus.OK)
        rails.events.clear()
    failed(rails, A0, A1)
    rails.put(ack=ack)
    status, reason = end_of(rails)
    assert status == -errno.ENETDOWN
    assert reason == f"no NI on the way to {B0} is up: {A0}, {A1}; mend a device, or add an NI"
    with pytest.raises(LNetError, match="no NI on the way"):
        rails.a.explain(B0)
    rails.a.ni_event(rails.ni(A1), NiEvent.RECOVERED)
    rails.events.clear()
    rails.put(ack=ack)
    assert rails.end(HealthStatus.OK)[0].nid == A1


@pytest.mark.requirement("snd-080")
def test_to_a_peer_that_would_have_to_be_discovered_first() -> None:
    fabric, events = Fabric(), Recorder()
    core = fabric.node(str(A0), discovery=True)
    core.ni_event(core.nis[A0], NiEvent.FATAL)
    core.put(core.memory.md_bind(b"x", events, threshold=1), B0, 5, 7, ack=False)
    fabric.run()
    assert [event.status for event in events] == [-errno.ENETDOWN]
    assert "no NI on the way" in events[0].reason
    fabric.assert_conserved()


@pytest.mark.requirement("snd-080", "RTR")
@pytest.mark.parametrize("source", [None, A0], ids=str)
def test_over_a_gateway(source: Nid | None) -> None:
    fabric, events = Fabric(), Recorder()
    core = fabric.node(str(A0))
    core.set_discovery(0)
    far = Nid.parse("10.7.0.9@tcp7")
    core.gateways.add(Net.parse("tcp7"), B0, -1, 0)
    core.ni_event(core.nis[A0], NiEvent.FATAL)
    core.put(core.memory.md_bind(b"x", events, threshold=1), far, 5, 7, ack=False, source=source)
    fabric.run()
    words = f"source NID {A0} is down" if source else f"no NI on the way to {far} is up: {A0}"
    assert [(event.status, words in event.reason) for event in events] == [(-errno.ENETDOWN, True)]
    with pytest.raises(LNetError, match=words):
        core.explain(far, source=source)


def waits_for_a_credit(rails: Rails) -> None:
    rails.put()
    for _ in range(rails.pni(B0).max_tx_credits + 1):
        rails.put()


def is_given_back(rails: Rails) -> None:
    rails.put()
    ((ni, msg),) = rails.on_wire()
    rails.fabric.wire.remove((ni, msg))
    rails.a.ni_event(ni, NiEvent.FATAL)
    rails.a.take_back(msg)


@pytest.mark.requirement("snd-080", "snd-085")
@pytest.mark.parametrize("was_begun", [waits_for_a_credit, is_given_back])
def test_what_was_taken_before_waits_for_the_device(was_begun: Callable[[Rails], None]) -> None:
    """A link that bounces loses nothing: its time-out decides."""
    rails = Rails((A0,), (B0,))
    was_begun(rails)
    failed(rails, A0)
    rails.ticks()
    assert rails.events == []
    rails.a.ni_event(rails.ni(A0), NiEvent.RECOVERED)
    rails.pass_time(1.0, answer=True)
    assert rails.events
    assert all(event.status == 0 for event in rails.events)


@pytest.mark.requirement("snd-070", "snd-080")
@pytest.mark.parametrize("kind", ["ACK", "REPLY"])
def test_an_answer_leaves_by_another_ni_than_the_one_that_was_asked(kind: str) -> None:
    rails = Rails()
    events = Recorder()
    md = rails.b.memory.md_bind(bytearray(8), events, threshold=2)
    if kind == "ACK":
        rails.b.put(md, A0, 5, 7, source=B0)
    else:
        rails.b.get(md, A0, 5, 7, source=B0)
    failed(rails, A0)
    rails.fabric.run()
    assert [event.kind.name for event in events] == ["SEND", kind]
    assert sum(rails.ni(A1).stats.sent) == 1

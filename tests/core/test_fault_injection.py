"""Fault rules at work between cores: drops, delays, and nothing lost track of (spec net-fault.md §2, §4)."""

from __future__ import annotations

import errno
import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from support.examples import examples
from support.fabric import Fabric, Recorder
from ulnet.core.event import EventKind
from ulnet.core.faults import Fault, FaultKind
from ulnet.core.md import MdOption
from ulnet.core.status import HealthStatus, LNetError
from ulnet.nid import ANY_NID, LO_NID, Nid

A, B = Nid.parse("10.0.0.1@tcp"), Nid.parse("10.0.0.2@tcp")
DROP, DELAY = FaultKind.DROP, FaultKind.DELAY
TARGET = MdOption.OP_PUT | MdOption.OP_GET | MdOption.TRUNCATE | MdOption.MANAGE_REMOTE
PUT, GET, REPLY, ACK = 2, 4, 8, 1


class Two:
    """A node that sends, a node that receives, one NID each."""

    def __init__(self) -> None:
        self.fabric = Fabric()
        self.a, self.b = self.fabric.node(str(A)), self.fabric.node(str(B))
        self.got, self.sent = Recorder(), Recorder()
        self.memory = bytearray(64)
        me = self.b.memory.me_attach(5, match_bits=7)
        self.b.memory.md_attach(me, self.memory, self.got, options=TARGET)

    def put(self, *, length: int = 8, ack: bool = True, to: Nid = B) -> None:
        md = self.a.memory.md_bind(b"x" * length, self.sent, threshold=2 if ack else 1)
        self.a.put(md, to, 5, 7, ack=ack)

    def get(self, length: int = 8) -> None:
        self.a.get(self.a.memory.md_bind(bytearray(length), self.sent, threshold=2), B, 5, 7)

    def later(self, seconds: float) -> None:
        """Time passes; everything that then can move moves."""
        self.fabric.clock.now += seconds
        self.fabric.run()

    def end(self) -> None:
        for core in self.fabric.cores:
            core.shutdown()
        self.fabric.run()
        self.fabric.assert_conserved()


@pytest.fixture
def two():
    two = Two()
    yield two
    two.end()


def test_without_rules_there_is_nothing_to_look_at(two):
    assert not two.a.faults.active
    two.a.faults.add(Fault(DROP, A, B, rate=1))
    assert two.a.faults.active
    two.a.faults.add(Fault(DELAY, A, B, rate=1, latency=1))
    assert two.a.faults.delete(DROP) == 1
    assert two.a.faults.active
    assert two.a.faults.delete(DELAY) == 1
    assert not two.a.faults.active


@pytest.mark.parametrize("length", [0, 8])
def test_a_rule_without_health_errors_drops_what_arrives(two, length):
    (one,) = [two.b.faults.add(Fault(DROP, ANY_NID, B, messages=PUT, rate=1))]
    two.put(length=length)
    two.fabric.run()
    assert not two.got
    assert two.sent.kinds == ["SEND"], "the sender does not know"
    assert two.b.stats.drop_count == 1
    assert two.b.stats.drops["a fault rule"] == 1
    assert two.b.nis[B].stats.dropped[1] == 1
    assert (one.count, one.struck, one.by_type) == (1, 1, [0, 1, 0, 0])
    two.b.faults.delete(DROP)
    two.put()
    two.fabric.run()
    assert two.got.kinds == ["PUT"]


def test_a_local_nid_is_that_of_the_ni_that_receives(two):
    two.b.faults.add(Fault(DROP, ANY_NID, ANY_NID, local=A, rate=1))
    two.put()
    two.fabric.run()
    assert two.got.kinds == ["PUT"]
    two.b.faults.add(Fault(DROP, ANY_NID, ANY_NID, local=B, rate=1))
    two.put()
    two.fabric.run()
    assert two.got.kinds == ["PUT"]


@pytest.mark.parametrize("status", [status for status in HealthStatus if status])
def test_a_rule_with_health_errors_fails_what_is_sent(two, status):
    two.a.faults.add(Fault(DROP, A, B, rate=1, health=1 << status))
    two.put()
    two.fabric.run()
    assert not two.got
    (event,) = two.sent
    assert (event.kind, event.status, event.health) == (EventKind.SEND, -errno.EIO, status)
    assert "fault rule" in event.reason
    assert two.a.stats.by_status[status] == 1


def test_rules_with_health_errors_ignore_what_arrives_and_others_what_is_sent(two):
    two.b.faults.add(
        Fault(DROP, ANY_NID, ANY_NID, rate=1, health=1 << HealthStatus.REMOTE_ERROR, messages=PUT)
    )
    two.a.faults.add(Fault(DROP, ANY_NID, ANY_NID, rate=1, messages=PUT))
    two.put()
    two.fabric.run()
    assert two.got.kinds == ["PUT"]


def test_drop_all_drops_on_both_sides(two):
    two.b.faults.add(Fault(DROP, ANY_NID, ANY_NID, rate=9, drop_all=True))
    two.put()
    two.fabric.run()
    assert not two.got
    two.b.faults.delete(DROP)
    two.a.faults.add(Fault(DROP, ANY_NID, ANY_NID, rate=9, drop_all=True))
    two.put(ack=False)
    two.fabric.run()
    assert [event.status for event in two.sent if event.status] == [-errno.EIO]


def test_the_newest_rule_is_asked_first_and_those_before_it_count(two):
    old = two.b.faults.add(Fault(DROP, ANY_NID, B, rate=1))
    new = two.b.faults.add(Fault(DROP, ANY_NID, B, rate=100))
    assert two.b.faults.rules(DROP) == [new, old]
    two.put(ack=False)
    two.fabric.run()
    assert (new.count, old.count, old.struck) == (1, 1, 1)


@pytest.mark.parametrize("length", [0, 8])
@pytest.mark.parametrize("side", ["send", "receive"])
def test_a_delay_holds_a_message_and_its_credits_for_so_long(two, side, length):
    core = two.a if side == "send" else two.b
    one = core.faults.add(Fault(DELAY, A, B, rate=1, latency=3, messages=PUT))
    two.put(length=length)
    two.fabric.run()
    two.later(2.9)
    assert not two.got
    if side == "send":
        assert two.a.nis[A].tx_credits == two.a.nis[A].max_tx_credits - 1
        assert not two.fabric.wire
    two.later(0.3)
    assert two.got.kinds == ["PUT"]
    assert sorted(two.sent.kinds) == ["ACK", "SEND"]
    assert (one.count, one.struck) == (1, 1)
    assert two.memory[:length] == b"x" * length


@pytest.mark.parametrize("messages", [GET, REPLY])
def test_delays_of_gets_and_replies(two, messages):
    two.a.faults.add(Fault(DELAY, ANY_NID, ANY_NID, rate=1, latency=1, messages=messages))
    two.get()
    two.fabric.run()
    assert "REPLY" not in two.sent.kinds
    two.later(1.2)
    assert "REPLY" in two.sent.kinds


def test_a_delayed_message_that_is_released_may_still_be_dropped(two):
    two.a.faults.add(Fault(DELAY, A, B, rate=1, latency=1, messages=PUT))
    two.a.faults.add(Fault(DROP, A, B, rate=1, messages=PUT, health=1 << HealthStatus.LOCAL_ERROR))
    two.put(ack=False)
    two.later(1.2)
    assert [event.health for event in two.sent] == [HealthStatus.LOCAL_ERROR]


def test_deleting_a_rule_releases_what_it_holds(two):
    two.a.faults.add(Fault(DELAY, A, B, rate=1, latency=100, messages=PUT))
    two.b.faults.add(Fault(DELAY, A, B, rate=1, latency=100, messages=PUT))
    two.put()
    two.fabric.run()
    assert two.a.faults.delete(DELAY, source=B) == 0
    assert not two.fabric.wire
    assert two.a.faults.delete(DELAY, source=A) == 1
    two.fabric.run()
    assert not two.got
    assert two.b.faults.delete(DELAY) == 1
    two.fabric.run()
    assert two.got.kinds == ["PUT"]


def test_order_is_kept_within_a_delay(two):
    two.a.faults.add(Fault(DELAY, A, B, rate=1, latency=2, messages=PUT))
    for length in (1, 2, 3):
        two.put(length=length, ack=False)
        two.later(0.5)
    assert not two.got
    two.later(0.6)
    assert [event.mlength for event in two.got] == [1]
    two.later(2)
    assert [event.mlength for event in two.got] == [1, 2, 3]


@pytest.mark.parametrize("side", ["send", "receive"])
def test_shutdown_ends_what_is_held(two, side):
    core = two.a if side == "send" else two.b
    core.faults.add(Fault(DELAY, A, B, rate=1, latency=100, messages=PUT))
    two.put(ack=False)
    two.fabric.run()
    core.shutdown()
    two.fabric.run()
    if side == "send":
        assert [bool(event.status) for event in two.sent] == [True]
    assert core.faults.rules(DELAY) == []
    assert core.state.timers.next_deadline() is None
    with pytest.raises(LNetError) as refused:
        core.faults.add(Fault(DROP, A, B, rate=1))
    assert refused.value.errno == errno.ESHUTDOWN


@pytest.mark.parametrize("side", ["send", "receive"])
def test_a_deleted_ni_gives_up_what_is_held_for_it(two, side):
    core, nid = (two.a, A) if side == "send" else (two.b, B)
    core.faults.add(Fault(DELAY, A, B, rate=1, latency=100, messages=PUT))
    two.put(ack=False)
    two.fabric.run()
    core.del_ni(nid)
    two.fabric.run()
    assert not two.got
    assert core.stats.msgs_alloc == 0


def test_a_connection_that_dies_takes_its_held_message_along(two):
    two.b.faults.add(Fault(DELAY, A, B, rate=1, latency=5, messages=PUT))
    two.put(ack=False)
    two.fabric.run()
    (delivery,) = two.fabric.delayed
    two.fabric.break_delivery(delivery)
    two.later(6)
    assert not two.got
    assert two.b.stats.drops["its connection closed while a fault rule held it"] == 1


def test_an_unlinked_memory_descriptor_is_not_sent_when_the_delay_is_over(two):
    two.a.faults.add(Fault(DELAY, A, B, rate=1, latency=1, messages=PUT))
    md = two.a.memory.md_bind(b"x", two.sent, threshold=1)
    two.a.put(md, B, 5, 7, ack=False)
    two.a.memory.md_unlink(md)
    two.later(1.2)
    assert not two.got
    assert [event.unlinked for event in two.sent][-1]


def test_messages_to_oneself_meet_rules_where_they_arrive(two):
    memory, got = bytearray(8), Recorder()
    two.a.memory.md_attach(two.a.memory.me_attach(5, match_bits=7), memory, got, options=TARGET)
    two.a.faults.add(Fault(DROP, LO_NID, LO_NID, rate=2))
    for _ in range(2):
        two.put(ack=False, to=LO_NID)
        two.fabric.run()
    assert got.kinds == ["PUT"]
    two.a.faults.delete(DROP)
    two.a.faults.add(Fault(DELAY, LO_NID, LO_NID, rate=1, latency=1))
    two.put(ack=False, to=LO_NID)
    two.fabric.run()
    assert got.kinds == ["PUT"]
    two.later(1.2)
    assert got.kinds == ["PUT", "PUT"]


def test_peers_cannot_make_a_rule_hold_without_end(two, monkeypatch):
    monkeypatch.setattr("ulnet.core.faults.injector.MAX_HELD", 3)
    two.b.faults.add(Fault(DELAY, A, B, rate=1, latency=50, messages=PUT))
    for _ in range(5):
        two.put(length=0, ack=False)
    two.fabric.run()
    assert len(two.got) == 2, "beyond the bound messages pass"
    two.later(51)
    assert len(two.got) == 5


class FaultsInAnyOrder(RuleBasedStateMachine):
    """Rules come and go under traffic while time passes: at the end all is accounted for."""

    def __init__(self) -> None:
        super().__init__()
        self.two = Two()
        chance = random.Random(7)
        for core in (self.two.a, self.two.b):
            core.faults._chance = chance.random

    @rule(
        at=st.sampled_from("ab"),
        kind=st.sampled_from(FaultKind),
        rate=st.integers(1, 4),
        timed=st.booleans(),
        latency=st.floats(0.1, 5),
        health=st.sampled_from([0, 0, 0x7FE]),
        messages=st.integers(0, 15),
    )
    def add(self, at, kind, rate, timed, latency, health, messages):
        which = {"interval": rate} if timed else {"rate": rate}
        fault = Fault(kind, ANY_NID, ANY_NID, messages=messages, latency=latency, health=health, **which)
        getattr(self.two, at).faults.add(fault)

    @rule(at=st.sampled_from("ab"), kind=st.sampled_from(FaultKind))
    def delete(self, at, kind):
        getattr(self.two, at).faults.delete(kind)

    @rule(ack=st.booleans(), length=st.integers(0, 64), count=st.integers(1, 12))
    def put(self, ack, length, count):
        for _ in range(count):
            self.two.put(ack=ack, length=length)

    @rule(length=st.integers(1, 64))
    def get(self, length):
        self.two.get(length)

    @rule(steps=st.integers(1, 20))
    def step(self, steps):
        for _ in range(steps):
            self.two.fabric.step()

    @rule(seconds=st.floats(0, 10))
    def wait(self, seconds):
        self.two.later(seconds)

    @rule()
    def break_a_connection(self):
        if self.two.fabric.delayed:
            self.two.fabric.break_delivery(self.two.fabric.delayed[0])

    @invariant()
    def rules_are_watched_for_exactly_while_there_are_any(self):
        for core in self.two.fabric.cores:
            there = core.faults.rules(DROP) + core.faults.rules(DELAY)
            assert core.faults.active == bool(there)

    def teardown(self):
        self.two.end()


FaultsInAnyOrder.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=25, deadline=None
)
TestFaultsInAnyOrder = FaultsInAnyOrder.TestCase

"""The parts without I/O: slots, sessions, admission, expected times."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ulnet.nid import Nid
from ulnet.node.shares import Shares
from ulnet.node.watch import Watch
from ulnet.rpc.admission import Admission
from ulnet.rpc.counters import ClientCounters
from ulnet.rpc.errors import RpcError
from ulnet.rpc.estimate import Estimate
from ulnet.rpc.pending import AGAIN, Pending
from ulnet.rpc.sessions import Session, Sessions, Verdict
from ulnet.rpc.slots import Slots
from ulnet.rpc.stream import Stream
from ulnet.sim import Simulation
from ulnet.wire.rpc import IDEMPOTENT, CallFrame, Kind, Note, Refused

pytestmark = pytest.mark.requirement("ULP")

CLIENT = Nid.parse("10.0.0.1@tcp")


def one(sessions: Sessions[str], number: int = 1) -> Session[str]:
    session = sessions.make(number, CLIENT, 5, 4, 1000)
    assert session is not None
    return session


def test_a_request_is_new_repeated_or_too_old() -> None:
    sessions: Sessions[str] = Sessions(10, 1000)
    session = one(sessions)
    assert session.judge(0, 1) is Verdict.NEW
    assert session.judge(4, 1) is Verdict.WRONG
    assert session.judge(0, 0) is Verdict.WRONG
    assert sessions.begin(session, 0, 1, "one") is None
    assert session.judge(0, 1) is Verdict.RUNNING
    assert sessions.end_request(session, 0, 1, b"reply", 10.0)
    assert session.judge(0, 1) is Verdict.ANSWERED
    assert (sessions.kept, session.busy) == (5, 1)
    assert sessions.expire(9.0) == 10.0
    assert session.judge(0, 1) is Verdict.ANSWERED
    assert sessions.expire(10.0) is None
    assert session.judge(0, 1) is Verdict.FORGOTTEN
    assert (sessions.kept, session.busy) == (0, 0)
    assert sessions.begin(session, 0, 2, "two") is None
    assert session.judge(0, 1) is Verdict.OLD
    assert sessions.begin(session, 0, 3, "three") == "two", "the client has given it up"
    assert not sessions.end_request(session, 0, 2, b"late", 10.0)
    assert sessions.end_request(session, 0, 3, None, 0.0) is False
    assert session.judge(0, 3) is Verdict.OLD
    assert session.busy == 0


def test_what_is_given_up_is_not_begun_any_more() -> None:
    sessions: Sessions[str] = Sessions(10, 1000)
    session = one(sessions)
    assert sessions.give_up(session, 1, 7) is None, "the notice overtook its request"
    assert session.judge(1, 7) is Verdict.OLD
    assert session.judge(1, 8) is Verdict.NEW
    sessions.begin(session, 1, 8, "eight")
    assert sessions.give_up(session, 1, 7) is None
    assert sessions.give_up(session, 1, 8) == "eight"
    assert session.judge(1, 8) is Verdict.OLD
    assert sessions.give_up(session, 4, 1) is None
    assert session.busy == 0


def test_what_was_sent_away_is_new_again() -> None:
    sessions: Sessions[str] = Sessions(10, 1000)
    session = one(sessions)
    sessions.begin(session, 0, 5, "five")
    sessions.take_back(session, 0, 5)
    assert session.judge(0, 5) is Verdict.NEW
    assert session.judge(0, 4) is Verdict.OLD
    assert session.busy == 0


def test_replies_that_are_kept_are_bounded() -> None:
    sessions: Sessions[str] = Sessions(10, 100)
    session = one(sessions)
    for slot in range(4):
        sessions.begin(session, slot, 1, "x")
        sessions.end_request(session, slot, 1, bytes(40), 10.0 + slot)
    assert sessions.kept <= 100
    assert [session.judge(slot, 1) for slot in range(4)].count(Verdict.ANSWERED) == 2
    sessions.end(session)
    assert sessions.kept == 0


def test_who_has_many_replies_kept_loses_its_own_first() -> None:
    """Whatever deadlines it gives, and however many sessions it has: else others' repetitions find none."""
    sessions: Sessions[str] = Sessions(10, 1000)
    other = sessions.make(1, Nid.parse("10.0.0.2@tcp"), 5, 4, 1000)
    assert other is not None
    greedy = [one(sessions, 2), one(sessions, 3)]
    for number in range(1, 9):
        for session in greedy:
            for slot in range(4):
                sessions.begin(session, slot, number, "x")
                sessions.end_request(session, slot, number, bytes(240), 1e9)
        slot = number % 4
        sessions.begin(other, slot, number, "y")
        sessions.end_request(other, slot, number, bytes(40), 10.0)
        assert sessions.kept <= 1000
        kept = [slot for slot in other.slots.values() if slot.reply is not None]
        assert len(kept) == min(number, 4), "the other's replies are all kept"
    assert greedy[1].judge(3, 8) is Verdict.ANSWERED, "its latest is kept"
    assert greedy[0].judge(0, 8) is Verdict.FORGOTTEN
    sessions.expire(1e9)
    assert sessions.kept == 0
    assert not any(sessions._by_size)


def test_idle_sessions_make_room() -> None:
    sessions: Sessions[str] = Sessions(2, 1000)
    first, second = one(sessions, 1), one(sessions, 2)
    sessions.begin(first, 0, 1, "x")
    third = one(sessions, 3)
    assert sessions.find(2) is None
    sessions.begin(third, 0, 1, "y")
    assert sessions.make(4, CLIENT, 5, 4, 1000) is None, "nobody is idle"
    assert sessions.make(3, CLIENT, 5, 4, 1000) is None, "that number is taken"
    assert sessions.end(first) == ["x"]
    assert one(sessions, 5) is sessions.find(5)
    assert second.busy == 0


def busy_one(sessions: Sessions[str], number: int, client: Nid, until: float = 1e9) -> Session[str] | None:
    """A session with a reply that is kept."""
    session = sessions.make(number, client, 5, 4, 1000)
    if session is not None:
        sessions.begin(session, 0, 1, "x")
        sessions.end_request(session, 0, 1, b"reply", until)
    return session


def test_one_client_leaves_sessions_for_the_next() -> None:
    """However many it makes, and keeps busy."""
    sessions: Sessions[str] = Sessions(64, 100_000)
    number = 0
    counts = []
    for at in range(1, 5):
        client = Nid.parse(f"10.0.0.{at}@tcp")
        made = 0
        for _ in range(100):
            number += 1
            made += busy_one(sessions, number, client) is not None
        counts.append(made)
    assert counts == [32, 16, 8, 4]
    assert len(sessions) == 60


def test_who_has_his_share_gives_up_idle_ones_of_his_own() -> None:
    sessions: Sessions[str] = Sessions(64, 100_000)
    others = [sessions.make(1000 + at, Nid.parse(f"10.0.1.{at}@tcp"), 5, 4, 1000) for at in range(30)]
    first = one(sessions, 1)
    for number in range(2, 60):
        assert busy_one(sessions, number, CLIENT) is None or number <= 18
    assert len(sessions) == 47, "an idle one of its own made room once"
    assert sessions.find(first.id) is None
    assert all(other is not None and sessions.find(other.id) is other for other in others)


def test_kept_replies_keep_no_session_from_the_next_client() -> None:
    """Who has most sessions of which only replies are kept loses the oldest; what runs is never forgotten."""
    sessions: Sessions[str] = Sessions(8, 100_000)
    other = busy_one(sessions, 100, Nid.parse("10.0.0.200@tcp"))
    runs = one(sessions, 101)
    sessions.begin(runs, 0, 1, "runs")
    sessions.begin(runs, 1, 1, "x")
    sessions.end_request(runs, 1, 1, b"reply", 1e9)
    greedy = [busy_one(sessions, 1 + at, Nid.parse(f"10.0.1.{at // 3}@tcp")) for at in range(6)]
    assert len(sessions) == 8 and None not in greedy
    for at in range(3):
        assert sessions.make(200 + at, Nid.parse(f"10.0.2.{at}@tcp"), 5, 4, 1000) is not None
        new = sessions.find(200 + at)
        assert new is not None
        sessions.begin(new, 0, 1, "runs, too")
    left = [number for number in range(1, 7) if sessions.find(number) is not None]
    assert len(left) == 3 and 1 not in left, "the oldest ones were forgotten"
    assert other is not None and sessions.find(100) is other and sessions.find(101) is runs
    assert sessions.kept == 5 * 5
    for number in (100, *left):
        assert sessions.end(sessions.find(number)) == []  # type: ignore[arg-type]
    for number in range(300, 304):
        session = sessions.make(number, Nid.parse(f"10.0.4.{number - 299}@tcp"), 5, 4, 1000)
        assert session is not None
        sessions.begin(session, 0, 1, "runs")
    assert sessions.make(400, Nid.parse("10.0.3.1@tcp"), 5, 4, 1000) is None, "all run"
    assert not any(sessions._by_count)


def test_of_sessions_that_ended_nothing_is_kept_until_the_times_of_their_replies() -> None:
    sessions: Sessions[str] = Sessions(10, 1000)
    for number in range(1, 1001):
        session = busy_one(sessions, number, CLIENT, until=1e9)
        assert session is not None
        sessions.end(session)
    assert len(sessions._heap) < 200
    assert sessions.kept == 0
    assert busy_one(sessions, 2000, CLIENT, until=5.0) is not None
    assert sessions.expire(0.0) == 5.0
    assert sessions.expire(5.0) is not None
    assert sessions.expire(1e9) is None


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 6), st.integers(0, 5)), max_size=60))
def test_no_number_begins_twice(steps: list[tuple[int, int, int]]) -> None:
    """Requests, ends, notices and times in any order."""
    sessions: Sessions[tuple[int, int]] = Sessions(10, 50)
    session = sessions.make(1, CLIENT, 5, 3, 1000)
    assert session is not None
    begun: Counter[tuple[int, int]] = Counter()
    for slot, number, step in steps:
        if step <= 2 and session.judge(slot, number) is Verdict.NEW:
            sessions.begin(session, slot, number, (slot, number))
            if step == 2:
                sessions.take_back(session, slot, number)
            else:
                begun[slot, number] += 1
        elif step == 3 and session.judge(slot, number) is Verdict.RUNNING:
            sessions.end_request(session, slot, number, bytes(20), float(number))
        elif step == 4:
            sessions.give_up(session, slot, number)
        elif step == 5:
            sessions.expire(float(number))
    assert max(begun.values(), default=0) <= 1
    assert sessions.kept <= 50
    busy = sum(1 for held in session.slots.values() if held.running or held.reply is not None)
    assert session.busy == busy
    replies = sum(1 for held in session.slots.values() if held.reply is not None)
    assert session.replies == replies
    if busy == replies > 0:
        assert session.account.quiet == {1: session}
    assert sessions._by_count[1] == ({session.account: None} if session.account.quiet else {})
    others = [sessions.make(2 + at, Nid.parse(f"10.0.0.{2 + at}@tcp"), 5, 3, 1000) for at in range(9)]
    for other in others:
        assert other is not None
        sessions.begin(other, 0, 1, (0, 1))
    assert (sessions.make(99, Nid.parse("10.0.0.99@tcp"), 5, 3, 1000) is not None) == (busy == replies)
    assert sessions._by_count[1] == {}


def test_slots_count_up() -> None:
    slots = Slots(2)
    assert (slots.take(), slots.take(), slots.take()) == ((0, 1), (1, 1), None)
    slots.give(1)
    assert slots.take() == (1, 2)
    slots._numbers[1] = 0xFFFFFFFF
    slots.give(1)
    slots.give(0)
    assert (slots.take(), slots.take()) == ((0, 2), None), "a slot without numbers is used no more"
    slots._numbers[0] = 0xFFFFFFFF
    slots.give(0)
    assert slots.used_up and slots.take() is None


def offered(admission: Admission[str], *items: str, size: int = 0, body: bool = False) -> list[list[str]]:
    """Those that were sent away for each item, of the client that its first letter names."""
    answers = [admission.offer(item[0], item, size, 0.0, body=body) for item in items]
    return [instead if taken else ["refused"] for taken, instead in answers]


def test_queues_are_bounded_and_served_in_turn() -> None:
    admission: Admission[str] = Admission(2, 4, 100)
    for item in ("a1", "a2", "a3", "a4", "a5", "a6"):
        assert offered(admission, item, size=10) == [[]]
        admission.next()
    assert (admission.running, admission.waiting, admission.bytes) == (2, 4, 60)
    assert offered(admission, "a7", size=10) == [["refused"]]
    assert offered(admission, "b1", size=10) == [["a6"]], "the newest of the longest queue makes room"
    assert offered(admission, "b2", size=10) == [["a5"]]
    assert offered(admission, "b3", size=10) == [["refused"]], "it has as many"
    assert offered(admission, "c1", size=50) == [["refused"]], "too many bytes"
    order = []
    while admission.running:
        admission.done("a", 10)
        found = admission.next()
        if found is not None:
            order.append(found[0])
    assert order[:2] == ["a3", "b1"]
    assert (admission.running, admission.waiting, admission.bytes) == (0, 0, 0)


def test_bodies_wait_beside_the_queue_and_make_room_first() -> None:
    admission: Admission[str] = Admission(1, 4, 1000)
    assert offered(admission, "a1", "a2", "a3", "a4", "a5", size=10, body=True) == [[]] * 5
    assert offered(admission, "a6", size=10, body=True) == [["refused"]], "four wait, and one would run"
    assert admission.next() is None, "none is there"
    assert admission.enter("a", 10) and not admission.enter("b", 10), "they keep no place"
    assert offered(admission, "b1", "b2", "b3", size=10) == [["a5"], ["a4"], ["refused"]]
    admission.came("a", "a2")
    admission.came("a", "a1")
    admission.done("a", 10)
    order = []
    while (found := admission.next()) is not None:
        order.append(found[0])
        admission.done(found[0][0], found[1])
    assert order == ["b1", "a2", "b2", "a1"]
    assert (admission.coming, admission.queued, admission.bytes) == (1, 0, 10)
    assert admission.remove("a", "a3") and not admission.remove("a", "a3")
    assert (admission.coming, admission.bytes, admission._held, admission._turns) == (0, 0, {}, {})


@pytest.mark.parametrize("queue", [0, 1])
def test_one_body_that_does_not_come_keeps_no_other_one_out(queue: int) -> None:
    admission: Admission[str] = Admission(1, queue, 1000)
    assert offered(admission, "a1", "a2", "a3", size=10, body=True) == [[], [], ["refused"]]
    assert offered(admission, "b1", "c1", size=10, body=True) == [["a2"], ["refused"]]


def test_who_has_most_bytes_makes_room_for_who_would_have_less() -> None:
    admission: Admission[str] = Admission(1, 10, 100)
    offered(admission, "a1", "a2", "a3", size=30, body=True)
    assert offered(admission, "b1", size=40) == [["a3"]], "others keep what is enough"
    assert offered(admission, "c1", size=31) == [["refused"]], "a would have less than c"
    assert offered(admission, "c1", size=30) == [["a2"]]
    assert offered(admission, "a2", size=30) == [["refused"]], "nobody has more than a would have"
    admission = Admission(1, 10, 100)
    offered(admission, "a1", size=100, body=True)
    assert offered(admission, "b1", size=1) == [["a1"]], "one body, too"
    assert offered(admission, "a1", size=100) == [["refused"]]
    assert admission.bytes == 1
    assert offered(admission, "d1", size=0) == [[]]


def test_it_is_known_whether_others_wait_or_found_no_room() -> None:
    admission: Admission[str] = Admission(1, 10, 100)
    assert admission.enter("a", 50)
    assert not admission.others_wait("a", 0.0)
    offered(admission, "a1", size=10)
    assert not admission.others_wait("a", 0.0) and admission.others_wait("b", 0.0)
    for key, now in (("a", 1.0), ("b", 2.0), ("a", 3.0)):
        assert admission.offer(key, "x", 60, now) == (False, [])
    assert admission.others_wait("a", 2.0) and not admission.others_wait("a", 2.1)
    for key in "cde":
        admission.offer(key, "x", 60, 4.0)
    assert len(admission._refused) == 2
    assert admission.others_wait("e", 4.0), "there was somebody else"


STEPS = st.tuples(st.sampled_from("abc"), st.sampled_from(["offer", "body", "came", "go", "gone"]))


@given(
    steps=st.lists(st.tuples(STEPS, st.integers(0, 60)), max_size=60),
    bounds=st.tuples(st.integers(1, 3), st.integers(0, 4)),
)
def test_places_and_bytes_come_back_once(
    steps: list[tuple[tuple[str, str], int]], bounds: tuple[int, int]
) -> None:
    concurrency, queue = bounds
    admission: Admission[str] = Admission(concurrency, queue, 100)
    here: dict[str, tuple[str, int]] = {}  # what has not begun: whether it comes or is queued
    runs: list[tuple[str, int, bool]] = []
    for number, ((key, step), size) in enumerate(steps):
        item = f"{key}{number}"
        mine = [other for other in here if other[0] == key]
        bulk = size % 2 == 1
        if step == "offer" and admission.enter(key, size, bulk):
            runs.append((key, size, bulk))
        elif step in ("offer", "body"):
            body = step == "body"
            taken, instead = admission.offer(key, item, size, 0.0, body=body, bulk=bulk)
            for other in instead:
                assert taken and other[0] != key
                del here[other]
            if taken:
                here[item] = ("comes" if body else "queued", size)
        elif step == "came":
            for other in [other for other in mine if here[other][0] == "comes"][:1]:
                admission.came(key, other)
                here[other] = ("queued", here[other][1])
        elif step == "gone":
            assert not admission.remove(key, item)
            for other in mine[:1]:
                assert admission.remove(key, other)
                del here[other]
        elif runs:
            admission.done(*runs.pop())
        while (found := admission.next()) is not None:
            assert here.pop(found[0]) == ("queued", found[1])
            runs.append((found[0][0], *found[1:]))
            shares = Counter(run[0] for run in runs if run[2])
            if found[2]:  # what a client leaves others may take later
                assert shares[found[0][0]] == 1 or shares.total() < concurrency
        states = [state for state, _ in here.values()]
        assert (admission.queued, admission.coming) == (states.count("queued"), states.count("comes"))
        assert admission.running == len(runs) <= concurrency
        assert admission.waiting <= max(queue + concurrency, 2)
        assert admission.bytes == sum(size for _, size in here.values()) + sum(run[1] for run in runs) <= 100
        shares = Counter(run[0] for run in runs if run[2])
        free = concurrency - shares.total()
        waits = {other[0] for other, (state, _) in here.items() if state == "queued"}
        assert not waits or admission.running == concurrency or all(shares[key] >= free for key in waits)
    for other in list(here):
        assert admission.remove(other[0], other)
    assert (admission.waiting, admission.bytes) == (0, sum(run[1] for run in runs))
    assert (admission._held, admission._turns, admission._passed) == ({}, {}, {})


def test_who_has_much_bulk_running_is_passed_over() -> None:
    admission: Admission[str] = Admission(8, 8, 1000)
    assert [admission.enter("a", 1, True) for _ in range(5)] == [True] * 4 + [False]
    assert admission.offer("a", "a5", 1, 0.0, bulk=True) == (True, [])
    assert admission.next() is None and not admission.others_wait("a", 0.0)
    assert admission.others_wait("b", 0.0)
    assert [admission.enter("b", 1, True) for _ in range(3)] == [True, True, False]
    assert admission.enter("a", 1), "without bulk"
    assert admission.offer("a", "a6", 1, 0.0) == (True, [])
    assert admission.next() is None, "it waits behind the one with bulk"
    admission.done("b", 1, True)
    assert admission.next() is None, "four run, and three places are left"
    assert admission.remove("a", "a5")
    assert admission.next() == ("a6", 1, False)
    admission.offer("a", "a7", 1, 0.0, bulk=True)
    assert admission.next() is None
    admission.done("a", 1, True)
    assert admission.next() == ("a7", 1, True)
    assert [Admission(most, 0, 10).enter("a", 1, True) for most in (1, 2)] == [True, True]


def test_a_request_that_waits_is_taken_out() -> None:
    admission: Admission[str] = Admission(1, 4, 100)
    offered(admission, "a1", size=1)
    admission.next()
    offered(admission, "a2", size=2)
    assert not admission.remove("a", "a1")
    assert admission.remove("a", "a2")
    assert not admission.remove("b", "a2")
    assert (admission.waiting, admission.bytes) == (0, 1)


def test_the_time_until_there_is_room() -> None:
    admission: Admission[str] = Admission(2, 100, 100)
    assert admission.retry_ms(1.0) == 1
    offered(admission, *[f"a{number}" for number in range(10)])
    assert admission.retry_ms(0.1) == 500
    assert admission.retry_ms(100.0) == 2000


def test_one_gets_as_much_as_is_left_for_others() -> None:
    shares = Shares(12)
    assert [shares.take("a") for _ in range(7)] == [True] * 6 + [False]
    assert [shares.take("b") for _ in range(4)] == [True] * 3 + [False]
    assert (shares.left, shares.taken) == (3, 9)
    for _ in range(2):
        shares.give("a")
    assert [shares.take("b") for _ in range(2)] == [True, False], "as many as the other one"
    for key, count in (("a", 4), ("b", 4)):
        for _ in range(count):
            shares.give(key)
    assert (shares.left, shares.taken, shares._own) == (12, 0, {})
    alone = Shares(1)
    assert [alone.take("a"), alone.take("b")] == [True, False]


def test_expected_times_follow_what_was_observed() -> None:
    estimate = Estimate(0.5)
    assert estimate.expected == 0.5
    for _ in range(100):
        estimate.observe(0.01)
    assert 0.01 <= estimate.expected < 0.012
    for _ in range(100):
        estimate.observe(1.0)
    assert 1.0 <= estimate.expected < 1.2
    estimate.observe(-5.0)
    assert estimate.expected > 0


class Item:
    """Something that is due."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.due_at = 0.0


def watched(sim: Simulation, due: Callable[[Item], None]) -> Watch[Item]:
    node = sim.node("n", "10.0.0.1@tcp")
    return Watch(node.loop, due)


def test_items_are_due_in_order_and_not_once_they_are_taken_out() -> None:
    sim, seen = Simulation(1), []
    watch = watched(sim, lambda item: seen.append((item.name, now())))
    now = sim.nodes["n"].loop.time
    begin = now()
    times = {"late": 7.3, "b": 0.0052, "a": 0.0051, "never": 0.0053, "c": 0.02}
    items = {name: Item(name) for name in times}
    for name, item in items.items():
        watch.add(item, begin + times[name])
    watch.discard(items["never"])
    watch.discard(items["never"])
    assert watch.items() == [items[name] for name in ("late", "b", "a", "c")]
    sim.run(10.0)
    assert [name for name, _ in seen] == ["a", "b", "c", "late"]
    assert all(0 <= when - begin - times[name] < 0.001 for name, when in seen)
    assert len(watch) == 0


def test_an_item_that_is_due_may_take_out_others_and_be_due_again() -> None:
    sim, seen = Simulation(1), []
    loop = sim.node("n", "10.0.0.1@tcp").loop
    items = [Item("first"), Item("second")]
    begin = loop.time()

    def due(item: Item) -> None:
        seen.append(item.name)
        watch.discard(items[1])
        if len(seen) < 3:
            watch.add(item, loop.time() + 0.0001)

    watch: Watch[Item] = Watch(loop, due)
    watch.add(items[1], begin + 0.0012)
    watch.add(items[0], begin + 0.0011)
    sim.run(1.0)
    assert seen == ["first"] * 3
    watch.add(items[0], begin + 1.5)
    watch.add(items[0], begin + 3.0)
    sim.run(1.0)
    assert len(seen) == 3, "it was put off"
    watch.close()
    sim.run(5.0)
    assert len(seen) == 3


def test_looks_at_very_many_items_are_not_too_frequent() -> None:
    sim = Simulation(1)
    seen: list[float] = []
    times: dict[Item, float] = {}
    loop = sim.node("n", "10.0.0.1@tcp").loop
    watch: Watch[Item] = Watch(loop, lambda item: seen.append(loop.time() - times[item]))
    begin = loop.time()
    for number in range(5000):
        item = Item(str(number))
        times[item] = begin + 1.0 + number * 1e-4
        watch.add(item, times[item])
    sim.run(2.0)
    assert len(seen) == 5000
    assert min(seen) >= 0
    assert max(seen) <= 2e-6 * 5000 + 0.001
    assert len({round(late, 9) for late in seen}) > 1


# What the server says of a call ------------------------------------------------------------------------


async def refused_as_stale(flags: int, attempt: int, taken: bool = False) -> Pending:
    """A call that was sent so often, and whose session the server does not know (any more)."""
    client = SimpleNamespace(loop=asyncio.get_running_loop(), clock=lambda: 0.0, target="there")
    client.session_is_stale = lambda connection: None
    client.watch = SimpleNamespace(discard=lambda pending: None, add=lambda pending, when: None)
    client.patience_of = lambda method: 1.0
    client.network, client.silence, client.unanswered = SimpleNamespace(expected=0.1), 60.0, 0
    frame = CallFrame(method="add", flags=flags, attempt=attempt)
    connection = SimpleNamespace(end=lambda: None)
    pending = Pending(cast(Any, client), cast(Any, connection), frame, None, 1.0)
    pending._sent = attempt
    if taken:
        pending.heard(Note(attempt=1, kind=Kind.WORKING, value=1000), 0.0)
    pending.heard(Refused(attempt=1, errno=errno.ESTALE), 0.0)
    return pending


@pytest.mark.pure  # its client is none, which the compiled build looks at
@pytest.mark.parametrize("flags", [0, IDEMPOTENT])
@pytest.mark.parametrize("attempt", [1, 2])
@pytest.mark.parametrize("taken", [False, True])
async def test_what_a_server_may_have_done_is_not_done_again(flags: int, attempt: int, taken: bool) -> None:
    pending = await refused_as_stale(flags, attempt, taken)
    if flags or (attempt == 1 and not taken):  # it may be done twice, or was not done for sure
        assert pending.done.result() is AGAIN
    else:
        with pytest.raises(RpcError, match="calls marked idempotent") as failed:
            await pending.done
        assert (failed.value.errno, failed.value.executed) == (errno.ECONNRESET, "unknown")


@pytest.mark.pure
@pytest.mark.parametrize(("kind", "longest"), [(Kind.WORKING, 10.1), (Kind.BUSY, 4.0)])
@pytest.mark.parametrize(("silence", "deadline"), [(60.0, None), (2.0, None), (2.0, 500.0)])
async def test_a_server_does_not_say_how_long_its_client_waits(
    kind: Kind, longest: float, silence: float, deadline: float | None
) -> None:
    """Honest ones say 10 and 2 seconds at most. Half of the silence is left to ask again."""
    now = 100.0
    client = SimpleNamespace(loop=asyncio.get_running_loop(), clock=lambda: now, target="there")
    client.counters = ClientCounters()
    client.patience_of = lambda method: 8.0
    client.network = SimpleNamespace(expected=0.1)
    client.random = lambda bits: (1 << bits) - 1
    client.silence, client.node_is_closed, client.unanswered = silence, False, 0
    client.look_for_server = client.send = lambda *args, **more: None
    armed: list[float] = []
    client.watch = SimpleNamespace(discard=lambda pending: None, add=lambda pending, when: armed.append(when))
    connection = SimpleNamespace(stale=False, lane=SimpleNamespace(add=lambda *args: None))
    pending = Pending(cast(Any, client), cast(Any, connection), CallFrame(method="add"), deadline, 8.0)
    pending.send()
    pending.heard(Note(attempt=1, kind=kind, value=0xFFFFFFFF), now)
    assert armed[-1] - now == pytest.approx(longest if deadline else min(longest, silence / 2), abs=0.001)
    now = armed[-1]
    pending.due()
    assert armed[-1] - now == pytest.approx(8.0 if deadline or silence > 10 else 1.0, abs=0.001)
    assert (pending.frame.attempt, pending.done.done()) == (2, False)
    now = armed[-1]
    pending.due()
    assert pending.done.done() is (deadline is None and silence < 10)


@pytest.mark.pure
async def test_chunks_that_overtook_each_other_are_read_in_order() -> None:
    pending = SimpleNamespace(chunks={1: b"1", 0: b"0"}, read=0, news=asyncio.Event())
    vars(pending).update(frame=SimpleNamespace(credit=8), release=lambda: None, send_credit=lambda: None)

    async def begin(*asked: object) -> object:
        return pending

    stream = Stream(cast(Any, SimpleNamespace(begin_stream=begin)), "news", b"", None, 8)
    assert [await anext(stream), await anext(stream)] == [b"0", b"1"]
    stream.close()

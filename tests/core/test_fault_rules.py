"""Fault rules by themselves: what they match and strike, and what is refused (spec net-fault.md §2, §3)."""

from __future__ import annotations

import errno
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ulnet.core.faults import Fault, FaultKind, FaultRule
from ulnet.core.faults.rule import ANY_STATUS
from ulnet.core.status import HealthStatus, LNetError
from ulnet.nid import ANY_NID, Nid
from ulnet.wire.lnet import Header, MsgType

A, B, C = Nid.parse("10.0.0.1@tcp"), Nid.parse("10.0.0.2@tcp"), Nid.parse("10.0.0.1@tcp1")
SIX = Nid.parse("fd00::1@tcp")
TCP, TCP1 = Nid.parse("255.255.255.255@tcp"), Nid.parse("255.255.255.255@tcp1")
DROP, DELAY = FaultKind.DROP, FaultKind.DELAY


def header(kind: int = MsgType.PUT, src: Nid = A, dst: Nid = B, portal: int = 5) -> Header:
    return Header(int(kind), dst, src, 12345, 12345, 0, portal=portal)


def rule(fault: Fault, seed: int = 0, now: float = 0.0) -> FaultRule:
    return FaultRule(fault.checked(), now, random.Random(seed).random)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(DROP, A, B),
        Fault(DROP, A, B, rate=1, interval=1),
        Fault(DROP, A, B, rate=-1),
        Fault(DROP, A, B, rate=-1, interval=-1),
        Fault(DELAY, A, B, rate=1),
        Fault(DELAY, A, B, rate=1, latency=-1),
        Fault(DROP, A, B, rate=1, random=True),
        Fault(DROP, A, B, rate=1, portals=1, messages=0b1001),
    ],
)
def test_what_cannot_be_is_refused(fault: Fault) -> None:
    with pytest.raises(LNetError) as refused:
        fault.checked()
    assert refused.value.errno == errno.EINVAL


def test_portals_restrict_a_rule_to_messages_that_have_one() -> None:
    assert Fault(DROP, A, B, rate=1, portals=1 << 5).checked().messages == 0b0110
    assert Fault(DROP, A, B, rate=1, portals=1, messages=0b0011).checked().messages == 0b0010
    assert Fault(DROP, A, B, rate=1).checked().messages == 0b1111


NIDS = st.sampled_from([A, B, C, SIX])
PATTERNS = st.sampled_from([A, B, C, SIX, ANY_NID, TCP, TCP1])


def meant(pattern: Nid, nid: Nid) -> bool:
    """The same, written down plainly."""
    if pattern in (TCP, TCP1):
        return str(nid).partition("@")[2] == str(pattern).partition("@")[2]
    return pattern in (ANY_NID, nid)


@given(
    kind=st.sampled_from(FaultKind),
    source=PATTERNS,
    dest=PATTERNS,
    local=st.sampled_from([A, B, ANY_NID]),
    portals=st.sets(st.integers(0, 63)),
    messages=st.sets(st.sampled_from([MsgType.ACK, MsgType.PUT, MsgType.GET, MsgType.REPLY])),
    src=NIDS,
    dst=NIDS,
    on=st.sampled_from([None, A, B]),
    type=st.sampled_from([MsgType.ACK, MsgType.PUT, MsgType.GET, MsgType.REPLY]),
    portal=st.integers(0, 100),
)
def test_matching(kind, source, dest, local, portals, messages, src, dst, on, type, portal) -> None:
    fault = Fault(
        kind,
        source,
        dest,
        local,
        portals=sum(1 << number for number in portals),
        messages=sum(1 << one for one in messages),
        rate=1,
        latency=1,
    )
    types = messages or {MsgType.ACK, MsgType.PUT, MsgType.GET, MsgType.REPLY}
    if portals:
        types = types & {MsgType.PUT, MsgType.GET}
    if not types:
        with pytest.raises(LNetError):
            fault.checked()
        return
    expected = (
        meant(source, src)
        and meant(dest, dst)
        and type in types
        and (not portals or portal in portals)
        and (kind is DELAY or local in (ANY_NID, on))
    )
    assert rule(fault).matches(header(type, src, dst, portal), on) == expected


@pytest.mark.parametrize(("on", "matched"), [(A, True), (SIX, True), (C, False), (None, False)])
def test_the_receiving_ni_may_be_any_of_a_net(on: Nid | None, matched: bool) -> None:
    assert rule(Fault(DROP, ANY_NID, ANY_NID, TCP, rate=1)).matches(header(), on) is matched


@given(
    kind=st.sampled_from(FaultKind), rate=st.integers(1, 20), blocks=st.integers(1, 10), seed=st.integers(0)
)
def test_a_rate_strikes_once_in_every_block(kind: FaultKind, rate: int, blocks: int, seed: int) -> None:
    one = rule(Fault(kind, A, B, rate=rate, latency=1), seed)
    struck = [one.strikes(MsgType.PUT, 0.0) for _ in range(rate * blocks)]
    assert [sum(struck[at : at + rate]) for at in range(0, len(struck), rate)] == [1] * blocks
    assert (one.count, one.struck, one.by_type) == (rate * blocks, blocks, [0, blocks, 0, 0])


def test_one_in_two_begins_with_the_first_drop() -> None:
    for seed in range(10):
        assert rule(Fault(DROP, A, B, rate=2), seed).strikes(MsgType.PUT, 0.0)


@given(interval=st.integers(1, 30), steps=st.lists(st.floats(0, 10), max_size=60), seed=st.integers(0))
def test_an_interval_strikes_once_in_so_many_seconds(interval: int, steps: list[float], seed: int) -> None:
    now = 1000.0
    one = rule(Fault(DROP, A, B, interval=interval), seed, now)
    struck = []
    for step in steps:
        now += step
        if one.strikes(MsgType.GET, now):
            struck.append(now)
        assert struck or now < 1000 + interval, "the first within one interval"
    assert len(struck) <= (now - 1000) / interval + 2
    assert one.count == len(steps)


@given(interval=st.integers(1, 9), seed=st.integers(0, 1000))
def test_a_random_rule_tosses_a_coin_and_counts_no_matches(interval: int, seed: int) -> None:
    one = rule(Fault(DROP, A, B, interval=interval, random=True), seed)
    struck = sum(one.strikes(MsgType.PUT, 0.0) for _ in range(300))
    assert one.count == 0
    assert struck == one.struck
    share = (interval - interval // 2) / interval
    assert struck == 300 if interval == 1 else abs(struck / 300 - share) < 0.15


def test_drop_all_strikes_every_match_and_counts_none() -> None:
    one = rule(Fault(DROP, A, B, rate=1000, drop_all=True))
    assert all(one.strikes(MsgType.ACK, 0.0) for _ in range(50))
    assert (one.count, one.struck, one.by_type) == (0, 50, [50, 0, 0, 0])


@given(mask=st.sets(st.integers(1, 10), min_size=1), draw=st.floats(0, 1, exclude_max=True))
def test_the_status_is_the_drawn_one_or_the_nearest_above_all(mask: set[int], draw: float) -> None:
    fault = Fault(DROP, A, B, rate=1, health=sum(1 << number for number in mask))
    drawn = max(int(draw * 11), 1)
    got = FaultRule(fault, 0.0, lambda: draw).status()
    assert got in mask
    nearest = min(abs(one - drawn) for one in mask)
    assert got == max(one for one in mask if abs(one - drawn) == nearest)


def test_every_status_comes_of_a_random_mask() -> None:
    one = rule(Fault(DROP, A, B, rate=1, health=ANY_STATUS))
    assert {one.status() for _ in range(2000)} == set(HealthStatus) - {HealthStatus.OK}


@given(seed=st.integers(0, 100))
def test_reset_begins_anew(seed: int) -> None:
    one = rule(Fault(DROP, A, B, rate=4), seed)
    for _ in range(7):
        one.strikes(MsgType.PUT, 0.0)
    one.reset(0.0)
    assert (one.count, one.struck, one.by_type) == (0, 0, [0, 0, 0, 0])
    assert sum(one.strikes(MsgType.PUT, 0.0) for _ in range(4)) == 1

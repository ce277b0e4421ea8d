"""A gateway that lists a node to which only it leads is believed until another way leads there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

import pytest

from control.discovery.test_discovery_elsewhere import BEYOND, FAR, NEAR, opened_to, sent_to, settle
from control.discovery.test_discovery_hostile import answer, attach, peer, push, put
from control.discovery.test_discovery_takeover import FOE, A
from support.fabric import Fabric
from ulnet.control.discovery.exchange import Exchanges
from ulnet.control.instance import LNet
from ulnet.core.event import Event
from ulnet.core.peer import Exchange, Peer
from ulnet.nid import LNET_PID, Net, Nid
from ulnet.wire.ping import NiEntry, PingInfo

NEAR2, FAR2 = Nid.parse("10.0.0.10@tcp"), Nid.parse("10.9.0.10@tcp9")
BEHIND, HERE = Net.parse("tcp9"), Net.parse("tcp")
SAYS_NO_ROUTER = 0x1E
HONEST = PingInfo(SAYS_NO_ROUTER, LNET_PID, 0xFFFFFF00, [NiEntry(NEAR), NiEntry(FAR)]).pack()
LIE = [NiEntry(NEAR), NiEntry(FAR), NiEntry(BEYOND)]

_Done: TypeAlias = Callable[[Exchange, Event], None]


@pytest.mark.parametrize("locked", [False, True], ids=["", "locked"])
@pytest.mark.parametrize(
    "case",
    [
        "another gateway was away",
        "another route is added",
        "another route is added, its gateway is away",
        "its route is replaced",
    ],
)
def test_a_gateway_has_no_nid_of_a_node_to_which_another_one_leads(
    fabric: Fabric, case: str, locked: bool
) -> None:
    """It had 8 of 8 messages for good, as its own, also where its route was down."""
    a = fabric.node(str(A), discovery=True)
    liar, gateway = (fabric.node(*map(str, nids), discovery=True) for nids in ((NEAR, FAR), (NEAR2, FAR2)))
    node = fabric.node(str(BEYOND), discovery=True)
    for core in (a, liar, gateway, node):
        core.gateways.settings.alive_router_check_interval = core.gateways.settings.router_ping_timeout = 5
    both = case == "another gateway was away"
    a.gateways.add(BEHIND, NEAR, 1, int(case != "its route is replaced"))
    if both:
        a.gateways.add(BEHIND, NEAR2, 1, 0)
    for core in (liar, gateway):
        core.router.enable(True)
    for nid in (FAR, FAR2):
        node.gateways.add(HERE, nid, 1, 0)
    settle(fabric, 70)
    attach(a)
    got, taken = attach(node), attach(liar)
    for sender, to in ((a, BEYOND), (node, A)):
        put(sender, to)
        settle(fabric)
    a.discovery.discover(BEYOND, force=True, done=lambda error, whose: None)
    settle(fabric, 10)
    if locked:
        a.peers.lock(peer(a, BEYOND))
    away = {nid: fabric.nis.pop(nid) for nid in (NEAR2, FAR2) if both}
    replaced = case in ("its route is replaced", "another route is added, its gateway is away")
    if not replaced:  # its route is down
        answer(liar, HONEST)
        push(liar, A, HONEST)
        settle(fabric, 40)
    says = PingInfo(0x1A if replaced else SAYS_NO_ROUTER, LNET_PID, 0xFFFFFF01, LIE).pack()
    answer(liar, says)
    push(liar, A, says)
    settle(fabric, 12)
    fabric.nis.update(away)
    if case == "its route is replaced":
        a.gateways.remove(list(a.gateways.table))
        settle(fabric, 5)
    later = {nid: fabric.nis.pop(nid) for nid in (NEAR2, FAR2) if case.endswith("its gateway is away")}
    if later:  # the router swallows what is asked over it
        liar.router.enable(False)
        answer(liar, says)
    if not both:
        a.gateways.add(BEHIND, NEAR2, 1, 0)
    settle(fabric, 20)
    fabric.nis.update(later)
    settle(fabric, 120)
    assert list(peer(a, BEYOND).members) == [BEYOND]
    assert sent_to(fabric, a, BEYOND, got) == 8
    assert not len(taken)
    assert opened_to(fabric, a, liar, BEYOND) == bytes(8)


@pytest.fixture
def fabric() -> Fabric:
    return Fabric()


def taken_by_a_router(fabric: Fabric, gateways: int, others: list[Nid]) -> tuple[LNet, LNet, LNet, list[Nid]]:
    """The node that asks, the router that lists what others have, one of them, and further gateways there."""
    a = fabric.node(str(A), discovery=True)
    liar = fabric.node(str(NEAR), str(FAR), discovery=True)
    rails = [
        (Nid.parse(f"10.0.1.{number}@tcp"), Nid.parse(f"10.9.1.{number}@tcp9")) for number in range(gateways)
    ]
    honest = [fabric.node(*map(str, nids), discovery=True) for nids in rails]
    node, *rest = (fabric.node(str(nid), discovery=True) for nid in (BEYOND, *others))
    for core in (a, liar, node, *honest):
        core.gateways.settings.alive_router_check_interval = core.gateways.settings.router_ping_timeout = 5
    a.gateways.add(BEHIND, NEAR, 1, 1)
    for core in (liar, *honest):
        core.router.enable(True)
    for core in (node, *rest):
        for nid in (FAR, *(far for _, far in rails)):
            core.gateways.add(HERE, nid, 1, 0)
    settle(fabric, 70)
    attach(a)
    for nid in (*others, BEYOND):
        put(a, nid)
    settle(fabric, 5)
    put(node, A)
    settle(fabric, 5)
    a.discovery.discover(BEYOND, force=True, done=lambda error, whose: None)
    settle(fabric, 10)
    listed = [NiEntry(nid) for nid in (NEAR, FAR, *others, BEYOND)]
    says = PingInfo(0x1A, LNET_PID, 0xFFFFFF01, listed).pack()
    answer(liar, says)
    push(liar, A, says)
    settle(fabric, 12)
    assert len(peer(a, NEAR).members) == len(listed)
    return a, liar, node, [near for near, _ in rails]


@pytest.mark.parametrize("silent", [2, 16, 100])
def test_silent_nids_of_its_list_do_not_keep_a_node_from_being_asked(fabric: Fabric, silent: int) -> None:
    """An answer of the router, which lists them all, stood for theirs: it had the messages for good."""
    others = [Nid.parse(f"10.9.2.{number}@tcp9") for number in range(silent)]
    a, liar, node, (near,) = taken_by_a_router(fabric, 1, others)
    got, taken = attach(node), attach(liar)
    for nid in others:
        del fabric.nis[nid]
    a.gateways.add(BEHIND, near, 1, 0)
    settle(fabric, 30)
    assert list(peer(a, BEYOND).members) == [BEYOND]
    assert sent_to(fabric, a, BEYOND, got) == 8
    assert not len(taken)


@pytest.mark.parametrize("gateways", [3, 9])
def test_a_node_that_is_away_is_asked_again_however_many_gateways_are_checked(
    fabric: Fabric, gateways: int
) -> None:
    """The check of each gateway counted as a question: eight of them were one second's."""
    a, liar, node, nears = taken_by_a_router(fabric, gateways, [])
    got, taken = attach(node), attach(liar)
    away = fabric.nis.pop(BEYOND)
    for near in nears:
        a.gateways.add(BEHIND, near, 1, 0)
    settle(fabric, 20)
    fabric.nis[BEYOND] = away
    settle(fabric, 40)
    assert list(peer(a, BEYOND).members) == [BEYOND]
    assert sent_to(fabric, a, BEYOND, got) == 8
    assert not len(taken)


@pytest.mark.pure
@pytest.mark.parametrize(("silent", "gateways"), [(100, 3), (127, 1)])
def test_who_stays_silent_is_asked_eight_times(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch, silent: int, gateways: int
) -> None:
    """Those that wait behind more than a turn asks are asked as often, whatever the router's checks do."""
    others = [Nid.parse(f"10.9.2.{number}@tcp9") for number in range(silent)]
    asked: Counter[Nid] = Counter()
    ask_who = Exchanges.ask_who

    def count(exchanges: Exchanges, to: Peer, kind: str, nid: Nid, done: _Done) -> None:
        asked[nid] += 1
        ask_who(exchanges, to, kind, nid, done)

    a, liar, _, nears = taken_by_a_router(fabric, gateways, others)
    monkeypatch.setattr(liar.info, "refresh", lambda: None)  # it says so all the time
    monkeypatch.setattr(Exchanges, "ask_who", count)
    for nid in (*others, BEYOND):
        del fabric.nis[nid]
    for near in nears:
        a.gateways.add(BEHIND, near, 1, 0)
    settle(fabric, 3)
    assert set(asked.values()) == {1}
    assert len(asked) < 65
    settle(fabric, 300)
    assert asked == dict.fromkeys((*others, BEYOND), 8)
    assert not a.discovery._claims._unasked


@pytest.mark.pure
def test_questions_about_others_do_not_use_up_those_of_a_router_for_its_own_list(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It swallowed eight that followed those to a NID of another peer, while the other gateway was away."""
    a, liar, node, (near,) = taken_by_a_router(fabric, 1, [])
    monkeypatch.setattr(liar.info, "refresh", lambda: None)  # it says so all the time
    got, taken = attach(node), attach(liar)
    silent = [Nid.parse("10.9.2.1@tcp9"), Nid.parse("10.9.2.2@tcp9")]
    foe, *others = (fabric.node(str(nid), discovery=True) for nid in (FOE, *silent))
    for core in others:
        core.gateways.add(HERE, FAR, 1, 0)
    for nid in (*silent, FOE):
        put(a, nid)
    settle(fabric, 12)
    a.gateways.remove(list(a.gateways.table))
    settle(fabric, 1)
    says = PingInfo(0x1E, LNET_PID, 0xFFFFFF01, [NiEntry(nid) for nid in (FOE, *silent)]).pack()
    answer(foe, says)
    push(foe, A, says)
    settle(fabric, 12)
    assert [peer(a, nid) for nid in silent] == [peer(a, FOE)] * 2
    assert peer(a, BEYOND) is peer(a, NEAR)
    away = {nid: fabric.nis.pop(nid) for nid in (near, *silent)}
    liar.router.enable(False)  # it swallows what is asked over it
    a.gateways.settings.alive_router_check_interval = 20  # longer than a question waits
    a.gateways.add(BEHIND, near, 1, 0)
    settle(fabric, 20)
    a.gateways.add(BEHIND, NEAR, 1, 1)
    settle(fabric, 300)
    fabric.nis[near] = away[near]
    settle(fabric, 120)
    assert list(peer(a, BEYOND).members) == [BEYOND]
    assert sent_to(fabric, a, BEYOND, got) == 8
    assert not len(taken)

"""A gateway that lists a node to which only it leads is believed until another way leads there."""

from __future__ import annotations

import pytest

from control.discovery.test_discovery_elsewhere import BEYOND, FAR, NEAR, opened_to, sent_to, settle
from control.discovery.test_discovery_hostile import answer, attach, peer, push, put
from control.discovery.test_discovery_takeover import A
from support.fabric import Fabric
from ulnet.nid import LNET_PID, Net, Nid
from ulnet.wire.ping import NiEntry, PingInfo

NEAR2, FAR2 = Nid.parse("10.0.0.10@tcp"), Nid.parse("10.9.0.10@tcp9")
BEHIND, HERE = Net.parse("tcp9"), Net.parse("tcp")
SAYS_NO_ROUTER = 0x1E
HONEST = PingInfo(SAYS_NO_ROUTER, LNET_PID, 0xFFFFFF00, [NiEntry(NEAR), NiEntry(FAR)]).pack()
LIE = [NiEntry(NEAR), NiEntry(FAR), NiEntry(BEYOND)]


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

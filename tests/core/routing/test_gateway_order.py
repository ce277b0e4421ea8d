"""By which criteria gateways are compared, and in which order (spec selection.md §7; Multi-Rail design)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.fabric import Fabric
from ulnet.control.instance import LNet
from ulnet.control.policy import Descriptor
from ulnet.core.peer import PeerNi
from ulnet.core.routing.table import Route
from ulnet.core.selection.choose import Balance
from ulnet.nid import Net, Nid

FAR = Nid.parse("10.7.0.9@tcp7")
GOOD, BAD = Nid.parse("10.0.0.8@tcp"), Nid.parse("10.0.0.9@tcp")

Change = Callable[[LNet, Route, PeerNi], None]


def preferred(core: LNet, route: Route, pni: PeerNi) -> None:
    core.policies.add(dst=Descriptor.parse(str(FAR)), rte=Descriptor.parse(str(pni.nid)))


def priority(core: LNet, route: Route, pni: PeerNi) -> None:
    route.priority -= 1


def hops(core: LNet, route: Route, pni: PeerNi) -> None:
    route.hops -= 1


def health(core: LNet, route: Route, pni: PeerNi) -> None:
    pni.health += 100


def queued_bytes(core: LNet, route: Route, pni: PeerNi) -> None:
    pni.tx_queued_bytes -= 1000


def credits(core: LNet, route: Route, pni: PeerNi) -> None:
    pni.tx_credits += 1


def sequence(core: LNet, route: Route, pni: PeerNi) -> None:
    route.seq -= 1


ORDERS: dict[Balance, list[Change]] = {
    "expected": [preferred, priority, hops, health, queued_bytes, credits, sequence],
    "documents": [preferred, health, priority, hops, queued_bytes, credits, sequence],
}
NAMES: dict[Change, str] = {
    preferred: "UDSP preference",
    priority: "route priority",
    hops: "hops",
    health: "health",
    queued_bytes: "queued bytes",
    credits: "credits",
    sequence: "sequence",
}


def two_gateways(balance: Balance) -> LNet:
    """Equal in all that is compared."""
    core = Fabric().node("10.0.0.1@tcp")
    core.set_discovery(0)
    core.selector.balance = balance
    core.peers.learn(FAR)
    for gateway in (BAD, GOOD):
        core.gateways.add(FAR.net, gateway, 5, 5)
    for route, pni in ways(core).values():
        route.seq, pni.health, pni.tx_queued_bytes, pni.tx_credits = 5, 500, 5000, 4
    return core


def ways(core: LNet) -> dict[Nid, tuple[Route, PeerNi]]:
    found = {}
    for route in core.gateways.table.to(Net.parse("tcp7")):
        pni = core.peers.find_ni(route.gateway)
        assert pni is not None
        found[route.gateway] = (route, pni)
    return found


def chosen(core: LNet) -> tuple[Nid, str]:
    """The gateway of a message that is sent now, and what decided for it."""
    core.state.generation.invalidate("as the test says")
    told = core.explain(FAR)
    (decided_by,) = [stage.decided_by for stage in told.stages if stage.name == "gateway"]
    core.put(core.memory.md_bind(b"x", None, threshold=1), FAR, 5, 7, ack=False)
    for _ in range(10):
        core.tick(100.0)
    lnd = next(ni.lnd for nid, ni in core.nis.items() if nid.net == GOOD.net)
    _, msg = lnd.fabric.wire.pop()  # type: ignore[attr-defined]
    assert told.peer_ni is msg.peer_ni
    return msg.next_nid, decided_by


@pytest.mark.requirement("HLD-gw", "RTR")
@pytest.mark.parametrize("balance", ORDERS)
@pytest.mark.parametrize("criterion", NAMES, ids=lambda change: change.__name__)
def test_a_gateway_that_is_better_by_one_criterion_is_taken(balance: Balance, criterion: Change) -> None:
    """Whatever speaks for the other one by those behind it."""
    core = two_gateways(balance)
    order = ORDERS[balance]
    known = ways(core)
    criterion(core, *known[GOOD])
    for later in order[order.index(criterion) + 1 :]:
        later(core, *known[BAD])
    assert chosen(core) == (GOOD, NAMES[criterion])

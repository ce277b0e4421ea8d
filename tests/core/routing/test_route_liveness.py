"""Whether a route can be used, by every rule of the kernel."""

from __future__ import annotations

import pytest

from ulnet.core.routing.liveness import GatewayView, cached_after_ping, why_down
from ulnet.core.routing.state import TRANSITIONS, RoutingInput, RoutingState
from ulnet.core.routing.table import Route
from ulnet.nid import Net, Nid

NEAR, FAR = Net.parse("tcp"), Net.parse("tcp5")
GATEWAY = Nid.parse("10.0.0.9@tcp")
GOOD = GatewayView(alive=True, discovers=True, forwards=True, nets={NEAR: True, FAR: True})


@pytest.mark.requirement("RTR")
@pytest.mark.parametrize(
    ("hops", "changes", "avoid", "why"),
    [
        (-1, {}, True, ""),
        (-1, {"alive": False}, True, "gateway dead"),
        (-1, {"nets": {NEAR: False, FAR: True}}, True, "gateway down on tcp"),
        (-1, {"nets": {FAR: True}}, True, "gateway down on tcp"),
        (1, {"nets": {NEAR: True, FAR: False}}, True, "gateway down on tcp5"),
        (1, {"nets": {NEAR: True}}, True, "gateway down on tcp5"),
        (1, {"nets": {NEAR: True, FAR: False}}, False, ""),
        (-1, {"nets": {NEAR: True, FAR: False}}, True, ""),
        (2, {"nets": {NEAR: True}}, True, ""),
        (-1, {"forwards": False}, True, "gateway does not route, or began to less than two minutes ago"),
        (1, {"discovers": False, "forwards": False, "nets": {}}, True, ""),
        (1, {"discovers": False, "alive": False}, True, "gateway dead"),
    ],
)
def test_a_route_is_down_for_a_reason(hops, changes, avoid, why):
    assert why_down(Route(FAR, GATEWAY, hops), GOOD._replace(**changes), avoid) == why


def test_a_gateway_seen_on_the_net_itself_is_one_hop_away():
    route = Route(FAR, GATEWAY)
    view = GOOD._replace(nets={NEAR: True, FAR: False})
    assert why_down(route, view, True) == ""
    route.alive, route.single_hop = cached_after_ping(route, view, True)
    assert (route.alive, route.single_hop) == (False, True)
    assert why_down(route, view, True) == "gateway down on tcp5"


def test_a_gateway_that_left_the_net_is_no_longer_way_to_it():
    route = Route(FAR, GATEWAY)
    route.alive, route.single_hop = cached_after_ping(route, GOOD, True)
    view = GOOD._replace(nets={NEAR: True})
    assert cached_after_ping(route, view, True) == (False, True)
    route.alive, route.single_hop = cached_after_ping(route, view, True)
    assert why_down(route, view, True) == "gateway down on tcp5"


def test_without_discovery_the_last_ping_counts():
    route = Route(FAR, GATEWAY)
    view = GOOD._replace(discovers=False)
    route.alive = False
    assert why_down(route, view, True) == "gateway down when last pinged"


@pytest.mark.parametrize(
    ("hops", "changes", "avoid", "alive", "single"),
    [
        (-1, {}, True, True, True),
        (-1, {"forwards": False}, True, False, False),
        (-1, {"nets": {NEAR: False, FAR: True}}, True, False, False),
        (-1, {"nets": {NEAR: True}}, True, True, False),
        (1, {"nets": {NEAR: True}}, True, False, False),
        (1, {"nets": {NEAR: True, FAR: False}}, True, False, True),
        (1, {"nets": {NEAR: True, FAR: False}}, False, True, True),
    ],
)
def test_what_a_ping_says_of_a_route(hops, changes, avoid, alive, single):
    verdict = cached_after_ping(Route(FAR, GATEWAY, hops), GOOD._replace(**changes), avoid)
    assert verdict == (alive, single)


def test_every_state_answers_the_two_words_of_an_administrator():
    for state in RoutingState:
        assert (state, RoutingInput.ENABLE) in TRANSITIONS
        assert (state, RoutingInput.DISABLE) in TRANSITIONS
    reached = {state for _, state in TRANSITIONS.values()}
    assert reached == set(RoutingState)

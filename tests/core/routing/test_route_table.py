"""The route table: what may be added, what is found, what goes when peers turn out to be one."""

from __future__ import annotations

import errno

import pytest

from ulnet.core.routing.table import MAX_ROUTES, Route, RouteTable
from ulnet.core.status import LNetError
from ulnet.nid import ANY_NID, LO_NET, LO_NID, Net, Nid

TCP, TCP1, TCP5 = Net.parse("tcp"), Net.parse("tcp1"), Net.parse("tcp5")
OWN = Nid.parse("10.0.0.1@tcp")
GATEWAY, OTHER = Nid.parse("10.0.0.9@tcp"), Nid.parse("10.0.0.8@tcp")


class Nodes:
    """Which NIDs belong together."""

    def __init__(self):
        self.peer_of = {}

    def __call__(self, nid):
        return self.peer_of.get(nid)


@pytest.fixture
def nodes():
    return Nodes()


@pytest.fixture
def table(nodes):
    return RouteTable(nodes, lambda count: count - 1)


def add(table, route, local=(TCP, TCP1)):
    table.check(route, local, {OWN})
    table.insert(route)
    return route


@pytest.mark.requirement("RTR")
def test_routes_are_found_by_net_and_by_gateway(table):
    one = add(table, Route(TCP5, GATEWAY))
    two = add(table, Route(TCP5, OTHER, hops=2, priority=3))
    three = add(table, Route(Net.parse("o2ib"), GATEWAY))
    assert list(table) == [one, two, three]
    assert len(table) == 3
    assert TCP5 in table and TCP1 not in table
    assert table.to(TCP5) == [one, two]
    assert table.to(TCP1) == []
    assert table.find(None, GATEWAY) == [one, three]
    assert {route.gateway for route in table} == {GATEWAY, OTHER}
    assert table.find(TCP5, None) == [one, two]
    assert table.find(None, GATEWAY) == [one, three]
    assert table.find(TCP5, OTHER) == [two]
    table.remove(three)
    assert Net.parse("o2ib") not in table
    assert (one.distance, two.distance) == (1, 2)


@pytest.mark.parametrize(
    ("route", "number", "words"),
    [
        (Route(TCP5, ANY_NID), errno.EINVAL, "cannot be a gateway"),
        (Route(TCP5, LO_NID), errno.EINVAL, "cannot be a gateway"),
        (Route(LO_NET, GATEWAY), errno.EINVAL, "no route to net lo"),
        (Route(TCP, GATEWAY), errno.EINVAL, "is on net tcp itself"),
        (Route(TCP1, GATEWAY), errno.EEXIST, "this node is on net tcp1 itself"),
        (Route(TCP5, GATEWAY, hops=0), errno.EINVAL, "hop 0 is out of range"),
        (Route(TCP5, GATEWAY, hops=256), errno.EINVAL, "hop 256 is out of range"),
        (Route(TCP5, GATEWAY, priority=-1), errno.EINVAL, "priority -1 is out of range"),
        (Route(TCP5, Nid.parse("10.9.9.9@tcp9")), errno.EHOSTUNREACH, "no NI is on net tcp9"),
        (Route(TCP5, OWN), errno.EINVAL, "is this node itself"),
    ],
)
def test_routes_that_cannot_be_are_refused_in_words(table, route, number, words):
    with pytest.raises(LNetError, match=words) as refused:
        add(table, route)
    assert refused.value.errno == number
    assert list(table) == []


def test_one_route_to_a_net_over_one_node_whatever_its_nid(table, nodes):
    add(table, Route(TCP5, GATEWAY))
    second = Nid.parse("10.1.0.9@tcp1")
    nodes.peer_of = {GATEWAY: "gw", second: "gw"}
    for nid in (GATEWAY, second):
        with pytest.raises(LNetError, match="already") as refused:
            add(table, Route(TCP5, nid, hops=3))
        assert refused.value.errno == errno.EEXIST
    assert table.to(TCP5)[0].hops == -1
    add(table, Route(Net.parse("tcp6"), second))
    assert len(table.find(None, GATEWAY)) == 2


def test_what_is_not_there_cannot_be_found(table):
    add(table, Route(TCP5, GATEWAY))
    for net, gateway in ((TCP1, None), (TCP5, OTHER), (None, OTHER)):
        with pytest.raises(LNetError, match="see 'lnetctl route show'") as refused:
            table.find(net, gateway)
        assert refused.value.errno == errno.ENOENT


def test_routes_have_a_limit(table):
    table._count = MAX_ROUTES
    with pytest.raises(LNetError) as refused:
        table.check(Route(TCP5, GATEWAY), {TCP}, ())
    assert refused.value.errno == errno.ENOSPC


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ((-1, 0), (-1, 0), 0),
        ((-1, 1), (-1, 0), 1),
        ((2, 0), (1, 0), 1),
        ((1, 1), (4, 0), 1),
    ],
)
def test_when_gateways_are_one_the_better_route_stays(table, first, second, kept):
    routes = [add(table, Route(TCP5, GATEWAY, *first)), add(table, Route(TCP5, OTHER, *second))]
    far = add(table, Route(Net.parse("tcp6"), OTHER))
    assert table.drop_twins([GATEWAY]) == table.drop_twins([OTHER]) == []
    gone = table.drop_twins([GATEWAY, OTHER])
    assert len(gone) == 1
    assert len(table.to(TCP5)) == 1
    if first != second:
        assert table.to(TCP5) == [routes[kept]]
    assert len(table) == 2
    assert list(table.over(gone[0].gateway)) == ([far] if gone[0].gateway == OTHER else [])


def test_nodes_place_routes_differently(nodes):
    orders = set()
    for seed in range(8):
        table = RouteTable(nodes, lambda count, seed=seed: (seed * 7) % count)
        routes = [add(table, Route(TCP5, Nid.parse(f"10.0.0.{n}@tcp"))) for n in range(2, 6)]
        assert sorted(route.gateway for route in routes) == sorted(r.gateway for r in table.to(TCP5))
        orders.add(tuple(route.gateway for route in table.to(TCP5)))
    assert len(orders) > 2

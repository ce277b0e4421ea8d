"""Calls, refusals with every reason, and what the side that called does about them (spec §1.4, §2)."""

from __future__ import annotations

import errno
import struct
from typing import Any

import pytest

from support.rdma import PARAMS, Stranger, node_and_stranger
from ulnet.control.access import access_of
from ulnet.core.access import EVERYBODY
from ulnet.core.status import HealthStatus, LNetError
from ulnet.core.tunables import NetTunables
from ulnet.lnd.o2ib.errors import CM_FAILURES, REACTIONS, connect_status
from ulnet.lnd.o2ib.ni import race_key
from ulnet.nid import Nid
from ulnet.sim import SimNode, Simulation
from ulnet.wire.o2ib import ConnParams, O2ibType, Reason, Reject

pytestmark = pytest.mark.requirement("LND-o2ib")
STALE = {"dst_incarnation": 5}


def conns(node: SimNode) -> list[Any]:
    state = node.o2ib.states[node.nid]
    return [conn for peer in state.peers.values() for conn in peer.conns]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"dst_nid": Nid.parse("10.0.0.2@o2ib")}, Reason.FATAL),
        ({"src_nid": Nid.parse("10.0.0.9@o2ib1")}, Reason.FATAL),
        ({"src_nid": Nid.parse("10.0.0.8@o2ib")}, Reason.FATAL),  # it is called from 10.0.0.9
        ({"type": O2ibType.CONNACK}, Reason.FATAL),
        (STALE, Reason.CONN_STALE),
        (STALE | {"params": PARAMS._replace(queue_depth=9)}, Reason.CONN_STALE),  # the order of the checks
        ({"params": PARAMS._replace(queue_depth=9)}, Reason.MSG_QUEUE_SIZE),
        ({"params": PARAMS._replace(max_fragments=258)}, Reason.RDMA_FRAGS),
        ({"params": PARAMS._replace(max_message=4097)}, Reason.FATAL),
        ({"params": PARAMS._replace(queue_depth=0)}, Reason.FATAL),
        ({"params": PARAMS._replace(max_fragments=0)}, Reason.FATAL),
    ],
)
def test_calls_that_are_refused(fields: dict[str, Any], reason: Reason) -> None:
    sim, node, stranger = node_and_stranger()
    stranger.there = node.nid, 0
    kind = fields.pop("type", O2ibType.CONNREQ)
    stranger.call(node, stranger.message(kind, **({"params": PARAMS} | fields)).pack())
    assert stranger.reason is reason
    refusal = Reject.unpack(stranger.events[0][2])
    assert refusal.params == PARAMS
    assert refusal.incarnation == node.o2ib.states[node.nid].incarnation
    sim.run_until_quiet()
    assert not node.o2ib.states[node.nid].peers


@pytest.mark.parametrize(
    ("at", "raw", "reason"),
    [
        (4, struct.pack("<H", 0x13), Reason.CONN_UNCOMPAT),
        (0, b"????", Reason.FATAL),
        (6, b"\xd1", Reason.FATAL),
        (16, b"\xff" * 8, Reason.FATAL),
    ],
)
def test_calls_that_cannot_be_read(at: int, raw: bytes, reason: Reason) -> None:
    _, node, stranger = node_and_stranger()
    stranger.there = node.nid, 0
    call = stranger.message(O2ibType.CONNREQ, params=PARAMS).pack()
    stranger.call(node, call[:at] + raw + call[at + len(raw) :])
    assert stranger.reason is reason
    assert Reject.unpack(stranger.events[0][2]).version == 0x12


@pytest.mark.parametrize(("credits", "depth"), [(1, 8), (7, 8), (8, 8), (254, 254), (255, 254), (70000, 254)])
def test_a_queue_has_a_depth_that_kernel_nodes_have(credits: int, depth: int) -> None:
    """One beyond 65,535 did not fit on the wire, and one of 1 left a peer of version 1 without any answer."""
    sim = Simulation(1, thorough=True)
    node, nid = sim.node("a"), Nid.parse("10.0.0.1@o2ib")
    sim.add_port(node.host, nid, None)
    node.add_ni(nid, tunables=NetTunables(peer_credits=credits, credits=max(credits, 256)))
    assert not node.configure("global: {discovery: 0, retry_count: 0}")
    stranger = Stranger(sim, "10.0.0.9@o2ib")
    node.ping(Nid.parse("10.0.0.9@o2ib"))
    sim.run(1)
    offered = stranger.calls[0].params
    assert offered is not None and offered.queue_depth == depth


def test_an_ni_that_is_down_is_not_ready() -> None:
    _, node, stranger = node_and_stranger()
    node.o2ib.states[node.nid].down = "as if"
    stranger.call(node)
    assert stranger.reason is Reason.EARLY


@pytest.mark.pure
def test_who_is_denied_is_neither_heard_nor_called() -> None:
    sim, node, stranger = node_and_stranger()
    core = node.node.core
    core.state.access = access_of(deny=["10.0.0.9@o2ib"])
    stranger.call(node)
    assert stranger.reason is Reason.FATAL
    events: list[int] = []
    md = core.memory.md_bind(b"", lambda event: events.append(event.status), threshold=1)
    core.put(md, stranger.nid, 5, 7, ack=False)
    sim.run_until_quiet()
    assert events == [-errno.EACCES]
    assert not node.o2ib.states[node.nid].peers


@pytest.mark.pure
@pytest.mark.parametrize("connected", [True, False])
def test_what_there_is_with_who_is_denied_from_now_on_ends(connected: bool) -> None:
    """A connection, or a call that has no answer yet; what waits for it fails, and nobody is called again."""
    sim, node, stranger = node_and_stranger()
    core = node.node.core
    if connected:
        stranger.call(node)
        sim.run_until_quiet()
        assert len(conns(node)) == 1
    else:
        stranger.answers = [None]
    events: list[int] = []
    for _ in range(3):
        md = core.memory.md_bind(b"", lambda event: events.append(event.status), threshold=1)
        core.put(md, stranger.nid, 5, 7, ack=False)
    if not connected:
        sim.run(0.1)
        assert len(stranger.calls) == 1
    core.set_access(access_of(deny=["10.0.0.9@o2ib"]))
    assert not node.o2ib.states[node.nid].peers
    sim.run_until_quiet()
    assert len(events) == 3
    assert connected or events == [-errno.EACCES] * 3
    assert len(stranger.calls) == (0 if connected else 1)
    core.set_access(EVERYBODY)
    stranger.call(node)
    sim.run_until_quiet()
    assert len(conns(node)) == 1


@pytest.mark.parametrize("version", [0x11, 0x12])
@pytest.mark.parametrize(
    ("asked", "agreed"), [(PARAMS, PARAMS), (ConnParams(4, 16, 2048), ConnParams(4, 16, 4096))]
)
def test_who_calls_gets_the_least_of_both(asked: ConnParams, agreed: ConnParams, version: int) -> None:
    sim, node, stranger = node_and_stranger()
    stranger.call(node, version=version, params=asked)
    sim.run_until_quiet()
    (conn,) = conns(node)
    assert (conn.params, conn.version, conn.credits) == (agreed, version, agreed.queue_depth)
    assert conn.pair is not None
    assert conn.pair.shape.receives == 2 * agreed.queue_depth + (2 if version == 0x12 else 0)


@pytest.mark.pure
def test_what_comes_before_the_connection_is_known_here_is_kept() -> None:
    sim, node, stranger = node_and_stranger()
    stranger.there = node.nid, 0
    sim.fabric.latency = lambda src, dst: 1e-3 if dst is stranger.device.port else 1e-9  # type: ignore[method-assign]
    stranger.call(node)
    stranger.say(O2ibType.NOOP)
    sim.run_until_quiet()
    assert len(conns(node)) == 1
    assert not stranger.hung_up


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (Reason.CONN_STALE, {"dst_incarnation": 77}),
        (Reject(0x12, Reason.CONN_UNCOMPAT, 77, PARAMS), None),
        (
            Reject(0x11, Reason.CONN_UNCOMPAT, 77, PARAMS),
            {"version": 0x11, "params": ConnParams(8, 257, 4096)},
        ),
        (Reject(0x11, Reason.FATAL, 77, PARAMS), {"version": 0x11}),
        (Reason.FATAL, None),
        (Reject(0x12, Reason.RDMA_FRAGS, 77, ConnParams(8, 32, 4096)), {"params": ConnParams(8, 32, 4096)}),
        (Reject(0x12, Reason.RDMA_FRAGS, 77, ConnParams(8, 0, 4096)), None),
        (Reject(0x12, Reason.RDMA_FRAGS, 77, ConnParams(8, 300, 4096)), None),
        (
            Reject(0x12, Reason.MSG_QUEUE_SIZE, 77, ConnParams(3, 257, 4096)),
            {"params": ConnParams(3, 257, 4096)},
        ),
        (Reject(0x12, Reason.MSG_QUEUE_SIZE, 77, ConnParams(8, 257, 4096)), None),
        (Reason.CONN_RACE, {"version": 0x12}),
        (Reason.NO_RESOURCES, None),
        (Reason.INVALID_SRV_ID, None),
        (Reason.EARLY, None),
        (Reject(0x12, 99, 77, PARAMS), None),
    ],
    ids=str,
)
def test_what_is_done_about_a_refusal(first: Reason | Reject, again: dict[str, Any] | None) -> None:
    sim, node, stranger = node_and_stranger()
    stranger.answers = [first]
    put = node.put(stranger.nid, 30, data=b"x", ack=False)
    sim.run_until_quiet()
    if again is None:
        assert len(stranger.calls) == 1
        reason = first if isinstance(first, Reason) else first.reason
        number = REACTIONS[Reason(reason)][1] if reason in list(Reason) else errno.ECONNREFUSED
        assert put.status == -number
        assert str(stranger.nid) in put.reason
    else:
        assert len(stranger.calls) == 2
        assert put.ok, put
        assert {name: getattr(stranger.calls[1], name) for name in again} == again
        assert stranger.count(O2ibType.IMMEDIATE) == 1


def test_refusals_without_end_end() -> None:
    sim, node, stranger = node_and_stranger()
    stranger.answers = [Reject(0x12, Reason.CONN_STALE, number, PARAMS) for number in range(1, 1000)]
    put = node.put(stranger.nid, 30, data=b"x", ack=False)
    sim.run_until_quiet()
    assert put.status == -errno.ESTALE
    assert len(stranger.calls) == 33


@pytest.mark.parametrize(
    ("fields", "number"),
    [
        ({"type": O2ibType.CONNREQ}, errno.EPROTO),
        ({"version": 0x11}, errno.EPROTO),
        ({"src_nid": Nid.parse("10.0.0.8@o2ib")}, errno.ESTALE),
        ({"dst_nid": Nid.parse("10.0.0.8@o2ib")}, errno.ESTALE),
        ({"dst_incarnation": 1}, errno.ESTALE),
        ({"params": PARAMS._replace(queue_depth=9)}, errno.EPROTO),
        ({"params": PARAMS._replace(queue_depth=0)}, errno.EPROTO),
        ({"params": PARAMS._replace(max_fragments=258)}, errno.EPROTO),
        ({"params": PARAMS._replace(max_message=5000)}, errno.EPROTO),
        (b"", errno.EPROTO),
        (b"nonsense", errno.EPROTO),
    ],
)
def test_answers_that_are_none(fields: Any, number: int) -> None:
    sim, node, stranger = node_and_stranger()
    state = node.o2ib.states[node.nid]
    stranger.there = node.nid, state.incarnation
    if isinstance(fields, dict):
        kind = fields.pop("type", O2ibType.CONNACK)
        fields = stranger.message(kind, **({"params": PARAMS} | fields)).pack()
    stranger.answers = [fields]
    put = node.put(stranger.nid, 30, data=b"x", ack=False)
    sim.run_until_quiet()
    assert put.status == -number
    assert not state.peers
    assert stranger.hung_up


@pytest.mark.requirement("HEALTH-o2ib")
@pytest.mark.parametrize(
    ("trouble", "number", "status", "cause"),
    [
        ("nobody", errno.EHOSTUNREACH, HealthStatus.NETWORK_TIMEOUT, "addr_err"),
        ("nobody listens", errno.EHOSTUNREACH, HealthStatus.NETWORK_TIMEOUT, "addr_err"),
        ("silence", errno.ETIMEDOUT, HealthStatus.NETWORK_TIMEOUT, "unreachable"),
        ("patience", errno.ENETDOWN, HealthStatus.LOCAL_DROPPED, "unreachable"),
        ("refused", errno.ECONNREFUSED, HealthStatus.REMOTE_DROPPED, "connect_rej"),
    ],
)
def test_calls_that_fail_are_charged_to_whom_they_tell_of(
    trouble: str, number: int, status: HealthStatus, cause: str
) -> None:
    sim, node, stranger = node_and_stranger()
    to = stranger.nid
    if trouble == "nobody":
        to = Nid.parse("10.0.0.77@o2ib")
    elif trouble == "nobody listens":
        stranger.device.close()
    elif trouble == "refused":
        stranger.answers = [Reason.NO_RESOURCES]
    else:
        sim.partition(["a"], [stranger.device.port.host.name])
    if trouble == "patience":
        node.core.settings.transaction_timeout = 1000
        node.core.settings_changed()
        node.core.nis[node.nid].lnd_tunables.timeout = 400  # type: ignore[union-attr]
        node.core.retune(node.core.nis[node.nid])
    put = node.put(to, 30, data=b"x", ack=False, timeout=900)
    sim.run_until_quiet(2000)
    assert put.status is not None
    peer_ni = node.core.peers.find_ni(to)
    assert peer_ni is not None
    assert peer_ni.health_stats.connects == {cause: 1}
    assert connect_status(number) is status
    if trouble not in ("silence", "patience"):  # which gives the message back, for other paths
        assert put.status == -number
        assert peer_ni.health_stats.by_status[status] == 1


@pytest.mark.requirement("HEALTH-o2ib")
def test_every_event_of_a_failed_call_has_its_errno() -> None:
    assert {event.name: number for event, number in CM_FAILURES.items()} == {
        "ADDR_ERROR": errno.EHOSTUNREACH,
        "ROUTE_ERROR": errno.EHOSTUNREACH,
        "UNREACHABLE": errno.ENETDOWN,
        "CONNECT_ERROR": errno.ENOTCONN,
        "DISCONNECTED": errno.ECONNRESET,
    }
    assert connect_status(errno.ENOTCONN) is HealthStatus.LOCAL_DROPPED


def test_who_gives_way_is_decided_by_addresses_as_they_lie_in_memory() -> None:
    one, other = Nid.parse("10.0.0.2@o2ib"), Nid.parse("10.0.1.1@o2ib")
    assert race_key(one) == 0x0200000A ^ 0x50000  # little-endian, as on x86
    assert race_key(one) > race_key(other)  # though it is the lower NID
    assert race_key(Nid.parse("10.0.0.2@o2ib7")) == 0x0200000A ^ 0x50007


def _race(low_calls: int) -> tuple[SimNode, Stranger, Simulation]:
    """A node that calls a stranger with a lower key, which calls it in the meantime."""
    sim, node, stranger = node_and_stranger(nid="10.9.9.0@o2ib")
    assert race_key(stranger.nid) < race_key(node.nid)
    stranger.answers = [None] * low_calls
    node.put(stranger.nid, 30, data=b"x", ack=False)
    sim.run_until(lambda: bool(stranger.calls))
    return node, stranger, sim


def test_of_two_that_call_each_other_the_lower_one_gives_way_twenty_times() -> None:
    node, stranger, sim = _race(1)
    for _ in range(20):
        stranger.call(node)
        assert stranger.reason is Reason.CONN_RACE
    stranger.call(node)
    assert stranger.events[0][0].name == "ESTABLISHED"
    sim.run_until_quiet()
    assert stranger.heard[0].type is O2ibType.IMMEDIATE  # what waited takes it


def test_the_lower_one_accepts_at_once() -> None:
    sim, node, stranger = node_and_stranger(nid="10.0.0.250@o2ib")
    assert race_key(stranger.nid) > race_key(node.nid)
    stranger.answers = [None]
    node.put(stranger.nid, 30, data=b"x", ack=False)
    sim.run_until(lambda: bool(stranger.calls))
    stranger.call(node)
    assert stranger.events[0][0].name == "ESTABLISHED"


@pytest.mark.parametrize("seed", range(20))
def test_nodes_that_call_each_other_at_once_reach_each_other(seed: int) -> None:
    sim = Simulation(seed, thorough=True)
    a, b = sim.node("a", "10.0.0.1@o2ib"), sim.node("b", "10.0.0.2@o2ib")
    for node in (a, b):
        node.attach(30)
    puts = [
        one.put(other.nid, 30, data=bytes(size)) for one, other in ((a, b), (b, a)) for size in (10, 50_000)
    ]
    sim.run_until_quiet()
    assert all(put.ok for put in puts)
    assert 1 <= len(conns(a)) <= 2
    assert len(conns(a)) == len(conns(b))


def test_another_life_ends_the_connections_of_the_former_one() -> None:
    sim, node, stranger = node_and_stranger()
    stranger.call(node)
    first = stranger.pair
    stranger.incarnation += 1
    stranger.call(node)
    sim.run_until_quiet()
    (conn,) = conns(node)
    assert conn.incarnation == stranger.incarnation
    assert first is not stranger.pair


def test_one_peer_has_so_many_connections_and_no_more() -> None:
    _sim, node, stranger = node_and_stranger()
    for _ in range(128):
        stranger.call(node)
        assert stranger.events[0][0].name == "ESTABLISHED"
    stranger.call(node)
    assert stranger.reason is Reason.NO_RESOURCES


def test_large_nids_are_refused_in_a_sentence() -> None:
    sim = Simulation(1)
    with pytest.raises(LNetError, match="o2ib carries NIDs of four bytes only"):
        sim.node("a", "fd00::1@o2ib")

"""`explain` for a bonding NI tells which slaves a message takes, and is what a message then takes."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from support.bonded import bond_of, bonded
from ulnet.core.md import Md
from ulnet.core.msg import Msg
from ulnet.dlc.documents_explain import ExplainView
from ulnet.dlc.model import Explain
from ulnet.dlc.model_bond import BondFailover, BondSwitch
from ulnet.nid import Nid
from ulnet.sim import LinkParams, Simulation
from ulnet.sim.node import SimNode
from ulnet.wire.lnet import MsgType

A_BOND, B_BOND = "10.0.0.1@bond0", "10.0.0.2@bond0"
A = ("10.0.0.1@tcp", "10.1.0.1@tcp1")
B = ("10.0.0.2@tcp", "10.1.0.2@tcp1")
PAIRS = [f"{a} -> {b}" for a, b in zip(A, B, strict=True)]


def explained(node: SimNode, size: int = 0) -> ExplainView:
    view: ExplainView = node.request(Explain(B_BOND, size=size)).document.explain  # type: ignore[union-attr]
    return view


def pair(sim: Simulation, **options: object) -> tuple[SimNode, SimNode]:
    a, b = bonded(sim, "a", *A, **options), bonded(sim, "b", *B, **options)
    b.attach(30)
    a.put(B_BOND, 30)
    sim.run(1)
    return a, b


def outcomes(view: ExplainView) -> dict[str, str]:
    stage = view.stages[-1]
    assert stage.stage == "path"
    return {one.name: one.outcome for one in stage.candidates}


@pytest.mark.requirement("BOND-modes")
def test_standby_takes_the_active_slaves_and_says_so() -> None:
    sim = Simulation(seed=1)
    a, _ = pair(sim)
    view = explained(a)
    assert (view.source, view.target, view.over) == ("10.0.0.1@bond", "10.0.0.2@bond", PAIRS[0])
    assert outcomes(view) == {PAIRS[0]: "chosen", PAIRS[1]: "out by active there"}
    sim.partition(["a.eth0"], ["b.eth0"])
    a.put(B_BOND, 30, data=bytes(1000))
    sim.run(1)
    view = explained(a)
    assert view.over == PAIRS[1]
    assert outcomes(view) == {PAIRS[0]: "out by works", PAIRS[1]: "chosen"}
    assert view.stages[-1].candidates[0].values == {"may be used": True, "works": False}
    sim.heal()
    sim.run_until_quiet()


@pytest.mark.requirement("BOND-util")
def test_a_slave_that_is_switched_off_is_out_first() -> None:
    sim = Simulation(seed=2)
    a, b = pair(sim, mode="loadbalance")
    a.request(BondSwitch(A_BOND, A[0], on=False))
    b.request(BondSwitch(B_BOND, B[1], on=False))
    assert outcomes(explained(a)) == {PAIRS[0]: "out by may be used", PAIRS[1]: "chosen"}
    a.put(B_BOND, 30)  # tells b, and hears from it
    sim.run(1)
    view = explained(a)
    assert set(outcomes(view).values()) == {"out by may be used"}
    assert view.over is UNSET
    sim.run_until_quiet()


@pytest.mark.requirement("BOND-modes")
@pytest.mark.parametrize(
    ("policy", "criterion"),
    [
        ("roundrobin", "turn"),
        ("weights", "weighted turn"),
        ("dynamic", "turn by rate"),
        ("congestion", "expected completion"),
    ],
)
def test_what_is_explained_is_what_a_message_takes(policy: str, criterion: str) -> None:
    sim = Simulation(seed=3, link=LinkParams(rate=1e8))
    more = {"weights": "'3,1'"} if policy == "weights" else {}
    a, _ = pair(sim, mode="loadbalance", policy=policy, **more)
    taken = set()
    for _ in range(40):
        view = explained(a, 100_000)
        assert view == explained(a, 100_000)  # asking changes nothing
        before = [a.core.nis[Nid.parse(nid)].stats.sent[MsgType.PUT] for nid in A]
        put = a.put(B_BOND, 30, data=bytes(100_000))
        sim.run_until(lambda put=put: put.ended)  # type: ignore[misc]
        after = [a.core.nis[Nid.parse(nid)].stats.sent[MsgType.PUT] for nid in A]
        (took,) = (PAIRS[at] for at in range(2) if after[at] > before[at])
        assert view.over == took
        assert list(view.stages[-1].candidates[0].values)[-1] == criterion
        taken.add(took)
    assert len(taken) == 2 or policy == "congestion"
    sim.run_until_quiet()


@pytest.mark.requirement("BOND-hello")
def test_before_the_handshake_nobody_knows() -> None:
    sim = Simulation(seed=4)
    a = bonded(sim, "a", *A)
    view = explained(a)
    assert "10.0.0.2@bond says HELLO first" in view.case
    assert view.over is UNSET
    assert not bond_of(a).peers  # asking makes no peer


@pytest.mark.requirement("BOND-util")
@pytest.mark.parametrize("failback", ["return", "stay"])
def test_a_failover_by_command_moves_what_this_node_sends(failback: str) -> None:
    """The peer's default slave works, and is its active one; the command is for this node's traffic."""
    sim = Simulation(seed=5)
    a, _ = pair(sim, failback=failback)
    a.request(BondFailover(A_BOND))
    sim.run(1)
    view = explained(a)
    assert view.over == PAIRS[1]
    assert outcomes(view)[PAIRS[0]] == "out by active here"
    a.request(BondFailover(A_BOND, A[0]))
    sim.run(1)
    assert explained(a).over == PAIRS[0]
    a.request(BondFailover(A_BOND))
    sim.link_down("a.eth1")  # the command holds until that slave fails
    sim.run(1)
    assert explained(a).over == PAIRS[0]
    sim.run_until_quiet()


@pytest.mark.requirement("BOND-modes")
def test_small_messages_that_joined_others_on_a_slave_are_load_for_what_comes_behind_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are counted in sum, as soon as anybody looks: so must who chooses among slaves."""
    sim = Simulation(seed=5)
    a, b = pair(sim, mode="loadbalance", policy="congestion")
    b.attach(31)
    core, bond = a.core, bond_of(a)
    nis = [core.nis[Nid.parse(nid)] for nid in A]
    for ni in nis:
        ni.batches = True  # as those of the TCP driver are
    light, small = core.memory.md_bind(bytes(300)), core.memory.md_bind(bytes(64))

    def put(md: Md, target: str) -> None:
        core.put(md, Nid.parse(target), 31, 0, ack=False)

    for md in (light, small) * 3:  # the ways are used once
        put(md, B[0])
        put(md, B_BOND)
        sim.run(1)
    put(light, B_BOND)  # alone on one slave
    held: list[Msg] = []
    with monkeypatch.context() as patched:
        patched.setattr(bond, "send", held.append)
        put(light, B_BOND)
    for _ in range(7):
        put(small, B[0])  # all of them on the other
    before = [ni.refs for ni in nis]
    bond.send(held.pop())
    took = [ni.refs > refs for ni, refs in zip(nis, before, strict=True)]
    core.settle()
    paths = bond.peers[Nid.parse(B_BOND)].paths
    loads = [path.outstanding - 372 * which for path, which in zip(paths, took, strict=True)]
    assert sorted(loads) == [372, 7 * 136]
    assert loads[took.index(True)] == 372
    sim.run(1)
    for md in (light, small):
        core.memory.md_unlink(md)
    sim.run_until_quiet()

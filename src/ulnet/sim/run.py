"""One run of a plan: build the nodes, let the events happen, wait until all is quiet, judge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ulnet.core.status import LNetError
from ulnet.dlc.errors import DlcError
from ulnet.dlc.model import Request
from ulnet.host import HostError, parse_topology
from ulnet.nid import Nid, NidError
from ulnet.sim.actions import Action, Traffic, action_of
from ulnet.sim.awaited import spawn
from ulnet.sim.cables import LinkParams
from ulnet.sim.errors import PlanError, SimError
from ulnet.sim.expect import Expectation, expectation_of
from ulnet.sim.failure import kind_of
from ulnet.sim.foreign import ForeignNode
from ulnet.sim.node import SimNode
from ulnet.sim.plan import InterfacePlan, NodePlan, Plan
from ulnet.sim.simulation import Simulation
from ulnet.sim.traffic import Operation

__all__ = ["Outcome", "Prepare", "Run", "play"]

Prepare = Callable[["Run"], None]
_EVENTS = 3_000_000  # the most that a plan may take, and so many more for each of its messages
_EVENTS_A_MESSAGE = 1000
_DIGITS = 12  # of a time in a plan: no two floats that look the same differ


@dataclass(slots=True)
class Outcome:
    """How a run ended: `failure` is empty if it did well, `expected` which one was not met (0: other)."""

    run: Run
    failure: str = ""
    expected: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing was wrong."""
        return not self.failure

    @property
    def kind(self) -> str:
        """Which failure it is, whatever the run: equal for the same invariant or expectation."""
        return f"expectation {self.expected}" if self.expected else kind_of(self.failure)


@dataclass(slots=True)
class Refusal:
    """Something that a node would not do; not a failure by itself."""

    at: float
    what: str
    why: str


@dataclass(slots=True)
class _Asked:
    node: str
    request: Request


@dataclass(eq=False)
class Run:
    """A plan on its way. `judges` look at the end of the run; they answer with what is wrong, or nothing."""

    plan: Plan
    sim: Simulation
    operations: list[Operation] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    judges: list[Callable[[Run], str]] = field(default_factory=list)

    def node(self, name: str) -> SimNode:
        """A node of ours. Raises PlanError."""
        found = self.sim.nodes.get(name)
        if found is None:
            raise PlanError(f"there is no node {name!r}: the plan has {', '.join(self.sim.nodes)}")
        return found

    def any_node(self, name: str) -> SimNode | ForeignNode:
        """A node, maybe a foreign one. Raises PlanError."""
        return self.sim.foreigners.get(name) or self.node(name)

    def target(self, text: str) -> Nid:
        """A NID, or the first of a node that is named. Raises NidError, PlanError."""
        node = self.sim.nodes.get(text) or self.sim.foreigners.get(text)
        if node is None:
            return Nid.parse(text)
        nids = node.nids
        if not nids:
            raise PlanError(f"node {text} has no NID now")
        return nids[0]

    def refuse(self, what: object, why: object) -> None:
        """Note that something was refused."""
        self.refusals.append(Refusal(self.sim.now, str(what), str(why)))
        self.sim.note(f"refused {why}")

    def ask(self, name: str, request: Request) -> None:
        """Have a node answer a request; what it refuses is noted."""
        node = self.node(name)

        async def asked() -> None:
            try:
                answer = await node.admin.handle(request)
            except DlcError as refused:
                self.refuse(_Asked(name, request), refused.item.descr)
            else:
                for error in answer.errors:
                    self.refuse(_Asked(name, request), error.descr)

        spawn(node, asked)


def play(
    plan: Plan,
    *,
    seed: int | None = None,
    trace: bool = False,
    thorough: bool = False,
    prepare: Sequence[Prepare] = (),
) -> Outcome:
    """Run a plan, with its own seed or another. Raises PlanError for one that cannot be."""
    actions = [(event.at, action_of(event.kind, event.words)) for event in plan.events]
    wanted = [expectation_of(item) for item in plan.expect]
    sim = Simulation(
        plan.seed if seed is None else seed,
        link=plan.link.on(LinkParams()),
        trace=trace,
        thorough=thorough,
    )
    run = Run(plan, sim)
    try:
        for name, node in plan.nodes.items():
            _make(sim, name, node)
    except (LNetError, NidError, HostError) as bad:
        raise PlanError(str(bad)) from None
    sim.most_events = _EVENTS + _EVENTS_A_MESSAGE * sum(
        action.messages for _, action in actions if isinstance(action, Traffic)
    )
    for made in prepare:
        made(run)
    expected = 0
    for at, action in actions:
        sim.scheduler.at(round(at, _DIGITS), _happen, run, action)
    try:
        sim.run(max((at + action.lasts for at, action in actions), default=0.0))
        sim.run_until_quiet(plan.settle)
        failure = next(filter(None, (judge(run) for judge in run.judges)), "")
        if not failure:
            expected, failure = _judge(run, wanted)
    except SimError as error:
        failure = str(error)
    except PlanError:
        _stop(sim)
        raise
    except Exception as error:
        failure = f"{type(error).__name__}: {error} {' '.join(getattr(error, '__notes__', ()))}"
    if failure:
        _stop(sim)
    return Outcome(run, failure, expected)


def _stop(sim: Simulation) -> None:
    """What the nodes have begun does not go on."""
    for node in sim.nodes.values():
        node.loop.kill()


def _judge(run: Run, wanted: list[Expectation]) -> tuple[int, str]:
    """The first expectation that is not met, counted from 1, and what is wrong; (0, "") if there is none."""
    try:
        judged = ((number, one.judge(run)) for number, one in enumerate(wanted, 1))
        return next((found for found in judged if found[1]), (0, ""))
    except NidError as bad:
        raise PlanError(str(bad)) from None


def _happen(run: Run, action: Action) -> None:
    if run.sim.tracing:
        run.sim.note(f"event {action}")
    try:
        action.happen(run)
    except (LNetError, NidError) as refused:
        run.refuse(action, refused)


def _make(sim: Simulation, name: str, plan: NodePlan) -> None:
    if plan.kind == "single-rail":
        sim.single_rail(name, *plan.nids)
        return
    if plan.kind == "silent":
        sim.foreign(name, *plan.nids)
        return
    if plan.kind != "node":
        raise PlanError(f"node {name}: {plan.kind!r} is none of node, single-rail and silent")
    node = sim.node(
        name,
        topology=parse_topology(plan.topology) if plan.topology else None,
        balance=plan.balance,
        recovery=plan.recovery,
    )
    for interface, cable in plan.interfaces.items():
        if isinstance(cable, str):
            cable = InterfacePlan(address=cable)
        link = cable.link.on(sim.link)
        sim.add_port(node, f"{cable.address}@tcp", link, cable.switch, name=interface)
    for nid in plan.nids:
        node.add_ni(nid)
    if plan.config:
        errors = node.configure(plan.config)
        if errors:
            raise PlanError(f"node {name}: " + "; ".join(error.descr for error in errors))
    for portal in plan.portals:
        node.attach(portal, keep_data=False)

"""What can happen in a plan: each kind of event as a typed value that knows how to happen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec

from ulnet.core.status import LNetError
from ulnet.dlc.config import read_config
from ulnet.dlc.model import Request
from ulnet.nid import NidError
from ulnet.sim.awaited import spawn
from ulnet.sim.errors import PlanError
from ulnet.sim.mending import repair
from ulnet.sim.plan import LinkPlan

if TYPE_CHECKING:
    from ulnet.sim.run import Run
    from ulnet.sim.traffic import Operation

__all__ = ["KINDS", "Action", "Traffic", "action_of", "request_of"]


class Action(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename={"source": "from"}):
    """`short` is the field that a lone word stands for."""

    short: ClassVar[str] = ""

    @property
    def lasts(self) -> float:
        """Seconds until all of it has begun."""
        return 0.0

    def happen(self, run: Run) -> None:
        """Do it. Raises LNetError, NidError, ValueError for what the nodes refuse."""
        raise NotImplementedError


class Traffic(Action):
    """`count` messages of `size` bytes, one each `every` seconds, from a node to a NID or to a node.

    With `burst`, each time so many are sent in one go. `awaited` ones are sent as programs do it, by a call
    of `ulnet.Node` in a task; the others by memory descriptors and events. `timeout` is in seconds; `cpt`
    says where the memory is, by default near the thread.
    """

    source: str
    to: str
    portal: int = 30
    bits: int = 0
    size: Annotated[int, msgspec.Meta(ge=0, le=1 << 20)] = 100
    count: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1
    every: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0.0
    burst: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    awaited: bool = False
    timeout: Annotated[float, msgspec.Meta(ge=0, le=1e6)] | None = None
    cpt: int | None = None

    @property
    def messages(self) -> int:
        """How many there will be."""
        return self.count * self.burst

    @property
    def lasts(self) -> float:
        """Seconds until the last of them begins."""
        return (self.count - 1) * self.every

    def happen(self, run: Run) -> None:
        """Begin the first now, and plan the others."""
        begin = self._one if self.burst == 1 else self._some
        for number in range(self.count):
            run.sim.scheduler.after(number * self.every, begin, run)

    def _some(self, run: Run) -> None:
        node = run.node(self.source)
        if node.loop.sleeps:
            node.loop.put_off(lambda: self._some(run))
        elif node.alive:
            node.loop.enter(self._burst, run)

    def _burst(self, run: Run) -> None:
        for _ in range(self.burst):
            self._one(run)

    def _one(self, run: Run) -> None:
        node = run.node(self.source)
        if node.loop.sleeps:
            node.loop.put_off(lambda: self._one(run))
            return
        if not node.alive:
            return
        try:
            run.operations.append(self.begin(run))
        except (LNetError, NidError) as refused:
            run.refuse(self, refused)

    def begin(self, run: Run) -> Operation:
        """One message."""
        raise NotImplementedError


class Put(Traffic):
    """PUTs; with `ack: false` nobody confirms them."""

    ack: bool = True

    def begin(self, run: Run) -> Operation:
        """One PUT."""
        node = run.node(self.source)
        data = (run.sim.now.hex().encode() * (self.size // 8 + 1))[: self.size]
        put = node.await_put if self.awaited else node.put
        return put(
            run.target(self.to),
            self.portal,
            self.bits,
            data,
            ack=self.ack,
            timeout=self.timeout,
            cpt=self.cpt,
        )


class Get(Traffic):
    """GETs."""

    def begin(self, run: Run) -> Operation:
        """One GET."""
        node = run.node(self.source)
        get = node.await_get if self.awaited else node.get
        return get(run.target(self.to), self.portal, self.bits, self.size, timeout=self.timeout, cpt=self.cpt)


class Ping(Traffic):
    """Pings."""

    def begin(self, run: Run) -> Operation:
        """One ping."""
        node = run.node(self.source)
        ping = node.await_ping if self.awaited else node.ping
        return ping(run.target(self.to))


class Stream(Traffic):
    """`count` PUTs (or GETs) of one memory descriptor, `window` of them under way at a time."""

    kind: Literal["put", "get"] = "put"
    window: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 8
    ack: bool = True

    def happen(self, run: Run) -> None:
        """Begin now."""
        node = run.node(self.source)
        if node.alive:
            node.stream(
                run.target(self.to),
                self.portal,
                self.bits,
                kind=self.kind,
                size=self.size,
                count=self.count,
                window=self.window,
                ack=self.ack,
                begun=run.operations.append,
            )


class Explain(Traffic):
    """PUTs; in the same go, while they wait to leave, the question which path another one would take."""

    def begin(self, run: Run) -> Operation:
        """One PUT, and the question."""
        node, target = run.node(self.source), run.target(self.to)
        made = node.put(target, self.portal, self.bits, bytes(self.size), timeout=self.timeout)
        told = node.loop.enter(lambda: node.node.explain(target, size=self.size))
        if told.ni is not None and told.peer_ni is not None:
            run.sim.note(f"explained {target}: {told.ni.nid} > {told.peer_ni.nid}")
        return made


class Attach(Action):
    """Memory on a portal, for all match bits; `mistaken`: its owner's handler raises each time."""

    node: str
    portal: int = 30
    size: int = 1 << 20
    lazy: bool = False
    mistaken: bool = False

    def happen(self, run: Run) -> None:
        """Attach it."""
        node = run.node(self.node)
        if not node.alive:
            return
        node.attach(self.portal, size=self.size, lazy=self.lazy, keep_data=False, mistaken=self.mistaken)
        if self.mistaken:
            run.sim.allowed_reports = (*run.sim.allowed_reports, "event handler failed")


class Down(Action):
    """Pull a cable."""

    short = "port"
    port: str

    def happen(self, run: Run) -> None:
        """Pull it."""
        run.sim.link_down(self.port)


class Up(Action):
    """Put it back."""

    short = "port"
    port: str

    def happen(self, run: Run) -> None:
        """Put it back."""
        run.sim.link_up(self.port)


class Link(Action):
    """Change a cable."""

    port: str
    link: LinkPlan

    def happen(self, run: Run) -> None:
        """From now on."""
        port = run.sim.port(self.port)
        port.params = self.link.on(port.params)


class RemoveDevice(Action):
    """The RDMA device of a port vanishes."""

    short = "port"
    port: str

    def happen(self, run: Run) -> None:
        """Until `restore_device`."""
        port = run.sim.port(self.port)
        port.host.remove_device(port)


class RestoreDevice(Action):
    """It is there again."""

    short = "port"
    port: str

    def happen(self, run: Run) -> None:
        """From now on."""
        port = run.sim.port(self.port)
        port.host.restore_device(port)


class Partition(Action):
    """Nothing passes from some nodes, NIDs or ports to others, nor back unless `one_way`."""

    between: list[str]
    and_: list[str] = msgspec.field(name="and")
    one_way: bool = False

    def happen(self, run: Run) -> None:
        """Until `heal`."""
        run.sim.partition(self.between, self.and_, both=not self.one_way)


class Heal(Action):
    """End all partitions."""

    short = "what"
    what: str = "all"

    def happen(self, run: Run) -> None:
        """End them."""
        run.sim.heal()


class Repair(Action):
    """All cables are in and lose nothing, and all partitions are over; nodes stay as they are."""

    short = "what"
    what: str = "all"

    def happen(self, run: Run) -> None:
        """Put everything right."""
        repair(run)


class Kill(Action):
    """End a node at once; `silent`: without a word, as when its power fails."""

    short = "node"
    node: str
    silent: bool = False

    def happen(self, run: Run) -> None:
        """End it."""
        run.any_node(self.node).kill(self.silent)


class Restart(Action):
    """Start a node anew."""

    short = "node"
    node: str

    def happen(self, run: Run) -> None:
        """Start it."""
        run.any_node(self.node).restart()


class Sleep(Action):
    """A node's process does not run for some seconds, as on a machine that is busy, or stopped."""

    node: str
    seconds: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 1.0

    def happen(self, run: Run) -> None:
        """From now on."""
        node = run.node(self.node)
        if node.alive:
            node.sleep(self.seconds)


class AddNi(Action):
    """Add an NI, and an interface if need be."""

    node: str
    nid: str

    def happen(self, run: Run) -> None:
        """Add it."""
        node = run.node(self.node)
        if node.alive:
            node.add_ni(self.nid)


class DelNi(Action):
    """Remove an NI."""

    node: str
    nid: str

    def happen(self, run: Run) -> None:
        """Remove it."""
        node = run.node(self.node)
        if node.alive:
            node.del_ni(self.nid)


class AddPeer(Action):
    """Configure a peer."""

    node: str
    nids: list[str]
    multi_rail: bool = True

    def happen(self, run: Run) -> None:
        """Configure it."""
        node = run.node(self.node)
        if node.alive:
            node.add_peer(self.nids[0], *self.nids[1:], multi_rail=self.multi_rail)


class Ask(Action):
    """A question of an upper layer: which is the `primary` NID of a node, or is it `discovered`.

    `primary` with `lock` keeps that name.
    """

    node: str
    nid: str
    what: Literal["primary", "discovered"] = "primary"
    lock: bool = False

    def happen(self, run: Run) -> None:
        """Ask it, in a task."""
        node = run.node(self.node)
        if node.alive:
            spawn(node, lambda: self._ask(run))

    async def _ask(self, run: Run) -> None:
        asked = run.node(self.node)
        try:
            if self.what == "primary":
                answer = str(await asked.node.primary_nid(self.nid, lock=self.lock))
            else:
                answer = str(await asked.node.peer_discovered(self.nid))
        except LNetError as refused:
            run.refuse(self, refused)
        else:
            run.sim.note(f"answer {self.what} {self.nid} {answer}")


class Lazy(Action):
    """Let messages that match no memory wait on a portal, or (`lazy: false`) drop those that wait."""

    node: str
    portal: int = 30
    lazy: bool = True

    def happen(self, run: Run) -> None:
        """From now on."""
        node = run.node(self.node)
        if node.alive:
            node.loop.enter(node.core.memory.set_lazy, self.portal, self.lazy)


class Cpu(Action):
    """A node's thread goes on on another CPU, and its memory is on a NUMA node (-1: nobody knows which)."""

    node: str
    cpu: int
    memory: int = -1

    def happen(self, run: Run) -> None:
        """Move it."""
        node = run.node(self.node)
        node.cpu, node.memory_node = self.cpu, self.memory


class NamePeer(Action):
    """Tell, as an upper layer does, which NIDs a node has."""

    node: str
    nids: list[str]

    def happen(self, run: Run) -> None:
        """Name it."""
        node = run.node(self.node)
        if node.alive:
            node.name_peer(*self.nids)


class Lnetctl(Action):
    """A request of the control socket, or lnetctl YAML to import."""

    node: str
    request: dict[str, Any] | None = None
    config: str | None = None

    def happen(self, run: Run) -> None:
        """Ask the node; what it refuses is noted."""
        if run.node(self.node).alive:
            for request in self.requests():
                run.ask(self.node, request)

    def requests(self) -> list[Request]:
        """What is asked. Raises PlanError."""
        if (self.request is None) == (self.config is None):
            raise PlanError("lnetctl: give either request or config")
        if self.request is not None:
            return [request_of(self.request)]
        config = read_config(self.config or "")
        if config.errors:
            raise PlanError("; ".join(error.descr for error in config.errors))
        return [step.request for step in config.steps]


def request_of(data: dict[str, Any]) -> Request:
    """The request that a mapping describes. Raises PlanError."""
    try:
        made: Request = msgspec.convert(data, Request)
    except msgspec.ValidationError as bad:
        raise PlanError(f"request {data}: {bad}") from None
    return made


KINDS: dict[str, type[Action]] = {
    "put": Put,
    "get": Get,
    "ping": Ping,
    "explain": Explain,
    "stream": Stream,
    "attach": Attach,
    "down": Down,
    "up": Up,
    "link": Link,
    "remove_device": RemoveDevice,
    "restore_device": RestoreDevice,
    "partition": Partition,
    "heal": Heal,
    "repair": Repair,
    "kill": Kill,
    "restart": Restart,
    "sleep": Sleep,
    "add_ni": AddNi,
    "del_ni": DelNi,
    "add_peer": AddPeer,
    "name_peer": NamePeer,
    "ask": Ask,
    "lazy": Lazy,
    "cpu": Cpu,
    "lnetctl": Lnetctl,
}


def action_of(kind: str, words: object) -> Action:
    """The action of that kind with these words. Raises PlanError."""
    made = KINDS.get(kind)
    if made is None:
        raise PlanError(f"{kind!r} is no event: use one of {', '.join(KINDS)}")
    if isinstance(words, str | int | float) and made.short:
        words = {made.short: str(words)}
    try:
        return msgspec.convert(words or {}, made, strict=False)
    except msgspec.ValidationError as bad:
        raise PlanError(f"event {kind}: {bad}") from None

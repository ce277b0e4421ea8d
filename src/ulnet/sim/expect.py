"""What a plan expects at its end: each kind of expectation as a typed value that can be judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec

from ulnet.core.status import LNetError
from ulnet.dlc.errors import DlcError
from ulnet.dlc.yaml_out import emit_document, emit_errors
from ulnet.nid import Nid
from ulnet.sim.actions import request_of
from ulnet.sim.dice import PORTAL
from ulnet.sim.errors import PlanError, SimError
from ulnet.sim.mending import mend
from ulnet.sim.places import find_ports

if TYPE_CHECKING:
    from ulnet.sim.run import Run
    from ulnet.sim.traffic import Operation

__all__ = ["EXPECTATIONS", "Expectation", "expectation_of"]


class Expectation(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`short` is the field that a lone word stands for."""

    short: ClassVar[str] = ""

    def judge(self, run: Run) -> str:
        """What is wrong, or nothing. Raises NidError, PlanError."""
        raise NotImplementedError


class Operations(Expectation):
    """How the messages of the plan ended: `all` well, or at least and at most so many of them."""

    short = "ok"
    ok: str = "all"
    least: int = 0
    most: int | None = None

    def judge(self, run: Run) -> str:
        """Count them."""
        if self.ok not in ("all", "some", "none"):
            raise PlanError(f"operations: {self.ok!r} is none of all, some and none")
        good = sum(operation.ok for operation in run.operations)
        total = len(run.operations)
        least = {"all": total, "some": max(self.least, 1), "none": 0}[self.ok]
        most = 0 if self.ok == "none" else self.most if self.most is not None else total
        if least <= good <= most:
            return ""
        failed = next((one for one in run.operations if not one.ok), None)
        wanted = self.ok if least == most == total else f"{least} to {most}"
        return f"{good} of {total} messages ended well; {wanted} should. The first that did not: {failed}"


class Peer(Expectation):
    """A node knows a peer with exactly these NIDs (and as multi-rail or not, by that primary NID)."""

    node: str
    nid: str
    nids: list[str] | None = None
    primary: str | None = None
    multi_rail: bool | None = None

    def judge(self, run: Run) -> str:
        """Look at its table."""
        peer = run.node(self.node).core.peers.find(Nid.parse(self.nid))
        if peer is None:
            return f"node {self.node} knows no peer {self.nid}"
        have = sorted(map(str, peer.nids()))
        if self.nids is not None and have != sorted(self.nids):
            return f"node {self.node} has peer {self.nid} as {', '.join(have)}"
        if self.primary is not None and str(peer.primary_nid) != self.primary:
            return f"node {self.node} has {peer.primary_nid} as primary NID of {self.nid}"
        if self.multi_rail is not None and peer.multi_rail != self.multi_rail:
            return f"node {self.node} has peer {self.nid} {'not ' if self.multi_rail else ''}as multi-rail"
        return ""


class Output(Expectation):
    """What a node answers to a request, as the text that lnetctl prints, has (or lacks) these words."""

    node: str
    request: dict[str, Any]
    contains: list[str] = []
    lacks: list[str] = []

    def judge(self, run: Run) -> str:
        """Ask it."""
        try:
            answer = run.node(self.node).request(request_of(self.request))
            text = emit_document(msgspec.to_builtins(answer.document)) if answer.document is not None else ""
            text += emit_errors(answer.errors) if answer.errors else ""
        except DlcError as refused:
            text = emit_errors([refused.item])
        for words in self.contains:
            if words not in text:
                return f"node {self.node} does not say {words!r} to {self.request}, but:\n{text}"
        for words in self.lacks:
            if words in text:
                return f"node {self.node} says {words!r} to {self.request}:\n{text}"
        return ""


class Counter(Expectation):
    """A counter of `lnetctl stats show` on a node, within bounds."""

    node: str
    name: str
    least: int = 0
    most: int | None = None

    def judge(self, run: Run) -> str:
        """Read it."""
        value = getattr(run.node(self.node).core.stats, self.name, None)
        if not isinstance(value, int):
            raise PlanError(f"counter {self.name!r} is none of LNet's, such as send_count")
        if value < self.least or (self.most is not None and value > self.most):
            return f"{self.name} of node {self.node} is {value}"
        return ""


class Balance(Expectation):
    """Of the bytes that a node sent, each of its ports carried at least this share."""

    node: str
    least: float

    def judge(self, run: Run) -> str:
        """Compare its ports."""
        ports = find_ports(run.sim.fabric, [self.node])
        total = sum(port.sent for port in ports)
        for port in ports:
            if port.sent < total * self.least:
                return f"{port} carried {port.sent} of {total} bytes"
        return ""


class Recovers(Expectation):
    """Once all is mended, each of these nodes reaches each of the targets: by default, all of these nodes.

    Mended are cables, partitions, dead nodes, NIs, and what the nodes' YAML says; `after` so many seconds
    they send. What fails is tried again so many `rounds`: a node may have refused what mends it at first.
    """

    nodes: list[str]
    targets: list[str] = []
    after: float = 60.0
    rounds: int = 1
    size: Annotated[int, msgspec.Meta(ge=0, le=1 << 20)] = 5000

    def judge(self, run: Run) -> str:
        """Mend, and send. Raises PlanError for nodes that there are not."""
        sim = run.sim
        pairs = [(node, to) for node in self.nodes for to in self.targets or self.nodes if to != node]
        try:
            for _ in range(self.rounds):
                mend(run)
                sim.run(self.after)
                sim.run_until_quiet()
                puts = [(node, to, self._put(run, node, to)) for node, to in pairs]
                sim.run_until_quiet()
                failed = [(node, to, put) for node, to, put in puts if isinstance(put, str) or not put.ok]
                if not failed:
                    return ""
                pairs = [(node, to) for node, to, _ in failed]
        except SimError as broken:
            return str(broken)
        node, to, put = failed[0]
        why = put if isinstance(put, str) else put.reason
        return f"node {node} does not reach {to} after all was mended: {why}"

    def _put(self, run: Run, node: str, to: str) -> Operation | str:
        try:
            return run.node(node).put(run.target(to), PORTAL, data=bytes(self.size))
        except LNetError as refused:
            return str(refused)


EXPECTATIONS: dict[str, type[Expectation]] = {
    "operations": Operations,
    "peer": Peer,
    "output": Output,
    "counter": Counter,
    "balance": Balance,
    "recovers": Recovers,
}


def expectation_of(item: dict[str, Any]) -> Expectation:
    """The expectation that a mapping with one key describes. Raises PlanError."""
    if len(item) != 1:
        raise PlanError(f"an expectation has one kind, and this has {len(item)}: {item}")
    kind, words = next(iter(item.items()))
    made = EXPECTATIONS.get(str(kind))
    if made is None:
        raise PlanError(f"{kind!r} cannot be expected: use one of {', '.join(EXPECTATIONS)}")
    if isinstance(words, str) and made.short:
        words = {made.short: words}
    try:
        return msgspec.convert(words or {}, made, strict=False)
    except msgspec.ValidationError as bad:
        raise PlanError(f"expectation {kind}: {bad}") from None

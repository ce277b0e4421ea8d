"""What `lst` prints, in the form of the real tool."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from ulnet.dlc.documents_selftest import BatchView, CountersView, NodeCounters, NodeView

__all__ = ["Picked", "batch_lines", "error_lines", "rates", "states", "table"]

_STATES: Final = ("active", "busy", "down", "unknown")
_HEAD: Final = "\tACTIVE\tBUSY\tDOWN\tUNKNOWN\tTOTAL"
_U32: Final = 1 << 32


def states(nodes: Sequence[NodeView]) -> str:
    """How many nodes are in which state."""
    counts = [sum(node.state == state for node in nodes) for state in _STATES]
    return "\t".join(map(str, [*counts, len(nodes)]))


def table(rows: Sequence[tuple[str, Sequence[NodeView]]]) -> list[str]:
    """The states of some groups of nodes."""
    return [_HEAD, *(f"{name}\t{states(nodes)}" for name, nodes in rows)]


def batch_lines(batch: BatchView) -> Iterator[str]:
    """One batch with its tests."""
    yield f"Batch: {batch.name} Tests: {len(batch.tests)} State: {batch.state}"
    yield from table([("client", batch.clients), ("server", batch.servers)])
    for number, test in enumerate(batch.tests, start=1):
        yield f"\tTest {number}({test.kind}) (loop: {test.loop}, concurrency: {test.concurrency})"
        yield from table([("client", test.clients), ("server", test.servers)])


# Statistics --------------------------------------------------------------------------------------------


class Picked(NamedTuple):
    """Which statistics are to be shown."""

    rpc: bool = False
    rate: bool = True
    bandwidth: bool = True
    read: bool = True
    write: bool = True
    pieces: tuple[str, ...] = ("Avg", "Min", "Max")
    mbs: bool = False


class _Kind(NamedTuple):
    title: str
    part: str
    read: str
    write: str
    unit: str
    digits: int
    scale: float
    end: str


_SUMS: Final[dict[str, Callable[[list[float]], float]]] = {
    "Avg": lambda values: sum(values) / len(values),
    "Min": min,
    "Max": max,
}


def _kinds(picked: Picked) -> list[_Kind]:
    unit, scale = ("MB/s", 1e6) if picked.mbs else ("MiB/s", float(1 << 20))
    if picked.rpc:
        rate = _Kind("RPC Rates", "rpc", "rpcs_rcvd", "rpcs_sent", "RPC/s", 0, 1.0, "")
        bandwidth = _Kind("RPC Bandwidth", "rpc", "bulk_get", "bulk_put", unit, 2, scale, " ")
    else:
        rate = _Kind("LNet Rates", "lnet", "recv_count", "send_count", "RPC/s", 0, 1.0, "")
        bandwidth = _Kind("LNet Bandwidth", "lnet", "recv_length", "send_length", unit, 2, scale, " ")
    return [rate] * picked.rate + [bandwidth] * picked.bandwidth


def rates(before: CountersView, now: CountersView, picked: Picked) -> Iterator[str]:
    """How fast the nodes of a group were between two looks at their counters."""
    old = {node.id: node for node in before.nodes if not node.error}
    pairs = [(old[node.id], node) for node in now.nodes if not node.error and node.id in old]
    pairs = [(one, other) for one, other in pairs if other.at > one.at]
    for kind in _kinds(picked):
        yield f"[{kind.title} of {now.name}]"
        for letter, wanted, name in (("R", picked.read, kind.read), ("W", picked.write, kind.write)):
            values = [_rate(one, other, kind, name) for one, other in pairs]
            if wanted and values:
                yield f"[{letter}] {_summary(values, kind, picked.pieces)}"


def _summary(values: list[float], kind: _Kind, pieces: Sequence[str]) -> str:
    texts = [f"{piece}: {_SUMS[piece](values):<8.{kind.digits}f} {kind.unit}" for piece in pieces]
    return " ".join(texts) + kind.end


def _rate(one: NodeCounters, other: NodeCounters, kind: _Kind, name: str) -> float:
    before, after = (getattr(node, kind.part).get(name, 0) for node in (one, other))
    grown = after - before
    if grown < 0:  # a counter of 32 bits that ran over, or a node that began anew
        grown = grown + _U32 if kind.digits == 0 and before > _U32 // 2 > after else 0
    rate: float = grown / (other.at - one.at) / kind.scale
    return rate


# Errors ------------------------------------------------------------------------------------------------


def error_lines(view: CountersView, session_only: bool) -> Iterator[str]:
    """The nodes of a group that have counted errors, or cannot be asked."""
    yield f"{view.name}:"
    bad = 0
    for node in view.nodes:
        words = [] if node.error else _errors(node, session_only)
        if node.error:
            yield f"12345-{node.id}: {node.error}"
        elif words:
            yield f"12345-{node.id}: {' '.join(words)}"
        bad += bool(node.error or words)
    yield f"Total {bad} error nodes in {view.name}"


def _errors(node: NodeCounters, session_only: bool) -> list[str]:
    framework, rpc = node.framework, node.rpc
    session = [framework.get(name, 0) for name in ("brw_errors", "ping_errors")]
    calls = [rpc.get(name, 0) for name in ("errors", "rpcs_dropped", "rpcs_expired")]
    if not any(session) and (session_only or not any(calls)):
        return []
    words = [f"[Session: {session[0]} brw errors, {session[1]} ping errors]"]
    if not session_only:
        words.append(f"[RPC: {calls[0]} errors, {calls[1]} dropped, {calls[2]} expired]")
    return words

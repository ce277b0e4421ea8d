"""Sections about the node as a whole: settings, policies, routing, ping (spec lnetctl.md §4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from ulnet.dlc import model
from ulnet.dlc.config_net import SHOWN
from ulnet.dlc.config_peer import numbered_nids
from ulnet.dlc.config_policy import read_selection, read_udsp
from ulnet.dlc.schema import Schema
from ulnet.dlc.settings import BUFFERS, ROUTER, SETTINGS
from ulnet.dlc.steps import Step, Verb
from ulnet.dlc.yaml_in import MapNode, Node, SeqNode

__all__ = [
    "global_steps",
    "read_buffers",
    "read_discoveries",
    "read_globals",
    "read_numa",
    "read_pings",
    "read_policies",
    "read_routes",
    "read_routing",
    "read_selections",
    "read_statistics",
]

_Rule = TypeVar("_Rule")
_ENABLE = range(4)  # kernel nodes print 2 for off and 3 for on, when they have router buffers
_ROUTE = ("net", "gateway", "hop", "priority", "health_sensitivity", "seq_no")
_ROUTE_STATE = ("type", "state", "notify_time")


# Settings ------------------------------------------------------------------------------------------------


def read_globals(schema: Schema, node: Node, verb: Verb) -> Iterator[Step]:
    """`global:`: all values of the section are set together."""
    mark = schema.mark()
    fields = schema.fields(node, "global", tuple(SETTINGS))
    yield from global_steps(schema, fields, node.line, verb, mark)


def read_numa(schema: Schema, node: Node, verb: Verb) -> Iterator[Step]:
    """`numa:`."""
    mark = schema.mark()
    fields = schema.fields(node, "numa", ("range",), ("CPTs",))
    if verb == "show":
        yield Step(model.NumaShow(), node.line)
    elif "range" in fields:
        yield from global_steps(schema, {"numa_range": fields["range"]}, node.line, verb, mark)


def global_steps(
    schema: Schema, fields: Mapping[str, Node], line: int, verb: Verb, mark: int
) -> Iterator[Step]:
    """The request for some settings."""
    given = {SETTINGS[name].name or name: schema.setting(fields, name) for name in fields}
    values = {name: value for name, value in given.items() if value is not None}
    if not schema.good(mark):
        return
    if verb == "show":
        yield Step(model.GlobalShow(), line)
        return
    if verb == "del":
        values = {name: one.default for name, one in SETTINGS.items() if one.restored and name in values}
    if values and verb != "exec":
        yield Step(model.GlobalSet(values), line)


def read_statistics(schema: Schema, node: Node, verb: Verb) -> Iterator[Step]:
    """`statistics:` of a full export: nothing to configure."""
    if verb == "show":
        yield Step(model.StatsShow(), node.line)


# Policies ------------------------------------------------------------------------------------------------


def read_policies(schema: Schema, node: Node, verb: Verb) -> Iterator[Step]:
    """`udsp:`. Rules are deleted by what they match; those named by their place alone, the last first."""
    by_place: list[Step] = []
    for rule, item, seq_no in _clean(schema, read_udsp(schema, node)):
        if verb == "add":
            yield Step(rule, item.line, seq_no)
        elif verb == "show":
            yield Step(model.UdspShow(rule.idx, verbosity=SHOWN), item.line, seq_no)
        elif rule.src is None and rule.dst is None and rule.rte is None:
            by_place.append(Step(model.UdspDel(rule.idx), item.line, seq_no))
        else:
            request = model.UdspDel(src=rule.src, dst=rule.dst, rte=rule.rte)
            yield Step(request, item.line, seq_no)
    yield from sorted(by_place, key=lambda step: -(getattr(step.request, "idx", None) or 0))


def read_selections(schema: Schema, node: Node, verb: Verb) -> Iterator[Step]:
    """`selection:`."""
    for rule, item, seq_no in _clean(schema, read_selection(schema, node, verb)):
        named = {name: getattr(rule, name) for name in ("net", "nid", "local", "remote")}
        request: model.Request = rule
        if verb == "del" and isinstance(rule, model.SelectionAdd):
            request = model.SelectionDel(kind=rule.kind, side=rule.side, **named)
        elif verb == "show":
            request = model.SelectionShow(kind=rule.kind, **named)
        yield Step(request, item.line, seq_no)


def _clean(
    schema: Schema, rules: Iterator[tuple[_Rule, MapNode, int | None]]
) -> Iterator[tuple[_Rule, MapNode, int | None]]:
    """Only those of which nothing is wrong."""
    mark = schema.mark()
    for rule in rules:
        if schema.good(mark):
            yield rule
        mark = schema.mark()


# Routing -------------------------------------------------------------------------------------------------


def read_routes(schema: Schema, node: Node, verb: Verb) -> Iterator[Step]:
    """`route:`."""
    for item in schema.items(node, "route"):
        mark = schema.mark()
        fields = schema.fields(item, "route", _ROUTE, _ROUTE_STATE)
        net = schema.text(fields, "net", item, required=verb != "show")
        gateway = schema.text(fields, "gateway", item, required=verb != "show")
        numbers = {name: schema.integer(fields, name) for name in ("hop", "priority", "health_sensitivity")}
        given: dict[str, Any] = {name: value for name, value in numbers.items() if value is not None}
        seq_no = schema.integer(fields, "seq_no")
        if not schema.good(mark):
            continue
        if verb == "show":
            yield Step(model.RouteShow(net, gateway, verbosity=1), item.line, seq_no)
        elif net is not None and gateway is not None:
            request = model.RouteDel(net, gateway) if verb == "del" else model.RouteAdd(net, gateway, **given)
            yield Step(request, item.line, seq_no)


def read_routing(schema: Schema, node: Node, verb: Verb) -> Iterator[Step]:
    """`routing:`: a mapping, or as `routing show` prints it a list with the state of each CPT's buffers."""
    if verb == "show":
        yield Step(model.RoutingShow(), node.line)
        return
    parts = list(node.items) if isinstance(node, SeqNode) else [node]
    for part in parts:
        if isinstance(part, MapNode) and any(key.text.startswith("cpt[") for key, _ in part.items):
            continue
        mark = schema.mark()
        fields = schema.fields(part, "routing", ("enable", "seq_no", *ROUTER))
        given = {name: schema.integer(fields, name) for name in ROUTER}
        values = {name: value for name, value in given.items() if value is not None}
        if values and verb == "add" and schema.good(mark):
            yield Step(model.RouterSet(values), part.line)
        enable = schema.setting(fields, "enable")
        if enable not in (None, *_ENABLE):
            schema.refuse(part.line, f"enable {enable} of routing is neither 0 nor 1: write one of them")
        if enable is not None and schema.good(mark):
            yield Step(model.RoutingSet(bool(enable & 1) and verb != "del"), part.line)


def read_buffers(schema: Schema, node: Node, verb: Verb) -> Iterator[Step]:
    """`buffers:`."""
    mark = schema.mark()
    fields = schema.fields(node, "buffers", (*BUFFERS, "seq_no"))
    sizes = {name: schema.integer(fields, name) for name in BUFFERS}
    if verb == "add" and schema.good(mark) and any(size is not None for size in sizes.values()):
        yield Step(model.BuffersSet(**sizes), node.line)


# What is done at once ------------------------------------------------------------------------------------


def read_pings(schema: Schema, node: Node, verb: Verb) -> Iterator[Step]:
    """`ping:`, for `import --exec`; milliseconds."""
    ignored = ("Multi-Rail", "peer ni", "peer_ni")
    for item, fields, nids, mark in _asked(schema, node, "ping", ("timeout", "source_nid"), ignored):
        timeout = schema.integer(fields, "timeout")
        source = schema.text(fields, "source_nid", item)
        if timeout is not None and not 0 < timeout <= 3_600_000:
            schema.refuse(item.line, f"timeout {timeout} of a ping is out of range: 1 to 3600000 ms")
        if verb == "exec" and schema.good(mark):
            yield Step(model.Ping(nids, source, (timeout or 1000) / 1000), item.line)


def read_discoveries(schema: Schema, node: Node, verb: Verb) -> Iterator[Step]:
    """`discover:`, for `import --exec`."""
    ignored = ("Multi-Rail", "peer ni", "peer_ni", "differences")
    for item, fields, nids, mark in _asked(schema, node, "discover", ("force",), ignored):
        force = schema.setting(fields, "force")
        if verb == "exec" and schema.good(mark):
            yield Step(model.Discover(nids, bool(force)), item.line)


def _asked(
    schema: Schema, node: Node, what: str, names: tuple[str, ...], ignored: tuple[str, ...]
) -> Iterator[tuple[MapNode, dict[str, Node], list[str], int]]:
    """Each item with the NIDs that it names: `primary nid`, or `nids` by number, then also without a list."""
    for item in [node] if isinstance(node, MapNode) else schema.items(node, what):
        mark = schema.mark()
        fields = schema.fields(item, what, ("primary nid", "nids", "seq_no", *names), ignored)
        if "primary nid" not in fields and not schema.good(mark):
            continue  # it is named by a word that was refused: what is missing would be another answer
        if "nids" in fields and "primary nid" not in fields:
            yield item, fields, numbered_nids(schema, fields["nids"], item), mark
        else:
            nid = schema.text(fields, "primary nid", item, required=True)
            yield item, fields, [nid or ""], mark

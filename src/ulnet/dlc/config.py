"""Configuration files: YAML sections become the same requests as command lines (spec lnetctl.md §4).

Keys that only a full export has (counters, states) are known and passed over; keys that nobody knows are
errors, all of them reported at once.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ulnet.dlc.config_policy import read_selection, read_udsp
from ulnet.dlc.errors import ErrorItem
from ulnet.dlc.model import GlobalSet, NetAdd, PeerAdd, Request, Tunables
from ulnet.dlc.schema import Schema
from ulnet.dlc.yaml_in import MapNode, Node, ScalarNode, YamlError, read_sections
from ulnet.nid import Net, Nid, NidError

__all__ = ["Config", "Step", "read_config", "step_error"]

GLOBALS = (
    "numa_range",
    "max_interfaces",
    "discovery",
    "drop_asym_route",
    "retry_count",
    "transaction_timeout",
    "health_sensitivity",
    "recovery_interval",
    "router_sensitivity",
    "lnd_timeout",
    "response_tracking",
    "recovery_limit",
    "max_recovery_ping_interval",
)
_NOT_BUILT = ("route", "routing", "buffers", "ip2nets", "ping", "discover")
_COUNTERS = ("statistics", "sent_stats", "received_stats", "dropped_stats", "health stats", "udsp info")
_NI_STATE = (*_COUNTERS, "status", "dev cpt")
_NI = ("nid", "interfaces", "tunables", "lnd tunables", "CPT")
_NET_TUNABLES = ("peer_timeout", "peer_credits", "peer_buffer_credits", "credits")
_LND_TUNABLES = ("conns_per_peer", "timeout", "tos")
_PEER_NI_STATE = (
    *_COUNTERS,
    "state",
    "max_ni_tx_credits",
    "available_tx_credits",
    "min_tx_credits",
    "tx_q_num_of_buf",
    "available_rtr_credits",
    "min_rtr_credits",
    "refcount",
)


class Step(NamedTuple):
    """One request of a file, and where it stands there."""

    request: Request
    line: int
    seq_no: int | None = None


class Config(NamedTuple):
    """What a file asks for; with errors, nothing of it should be done."""

    steps: list[Step]
    errors: list[ErrorItem]


def step_error(step: Step, item: ErrorItem) -> ErrorItem:
    """An error of a step's request, with the line that asked for it."""
    return ErrorItem(item.verb, item.entity, item.errno, f"line {step.line}: {item.descr}", step.seq_no)


def read_config(text: str) -> Config:
    """The requests of a file in its order. `lo`, which every node has, is passed over."""
    schema = Schema()
    steps: list[Step] = []
    try:
        sections = read_sections(text)
    except YamlError as bad:
        return Config([], [ErrorItem("add", "import", -errno.EINVAL, str(bad))])
    for key, node in sections:
        name = key.text
        if name in _SECTIONS:
            steps += _SECTIONS[name](schema, node)
        elif name in GLOBALS:
            steps += _global_steps(schema, {name: node}, key.line)
        elif name in _NOT_BUILT:
            schema.refuse(
                key.line, f"section '{name}' is not built yet in this version of ulnet", errno.EOPNOTSUPP
            )
        elif name != "statistics":
            schema.unknown(key, "a file", (*_SECTIONS, *GLOBALS))
    return Config(steps, schema.errors)


# net ---------------------------------------------------------------------------------------------------


def _nets(schema: Schema, node: Node) -> list[Step]:
    steps: list[Step] = []
    for item in schema.items(node, "net"):
        fields = schema.fields(item, "net", ("net type", "local NI(s)", "seq_no"))
        net = schema.text(fields, "net type", item, required=True)
        nis = fields.get("local NI(s)")
        seq_no = schema.integer(fields, "seq_no")
        if net == "lo" or net is None:
            continue
        if nis is None:
            schema.refuse(item.line, f"net {net} has no 'local NI(s)': list its NIs, each with 'interfaces'")
            continue
        for ni in schema.items(nis, "local NI(s)"):
            request = _net_add(schema, net, ni)
            if request is not None:
                steps.append(Step(request, ni.line, seq_no))
    return steps


def _net_add(schema: Schema, net: str, ni: MapNode) -> NetAdd | None:
    fields = schema.fields(
        ni, "a local NI", ("nid", "interfaces", "tunables", "lnd tunables", "CPT"), _NI_STATE
    )
    nid = schema.text(fields, "nid", ni)
    interfaces = _interfaces(schema, fields.get("interfaces"))
    tunables = Tunables(
        **_integers(schema, fields.get("tunables"), "tunables", _NET_TUNABLES),
        **_integers(schema, fields.get("lnd tunables"), "lnd tunables", _LND_TUNABLES),
    )
    cpts = schema.text(fields, "CPT", ni)
    if interfaces:
        return NetAdd(net=net, interfaces=interfaces, prefer=nid, tunables=tunables, cpts=cpts)
    if nid is None:
        schema.refuse(ni.line, f"an NI of net {net} has neither 'interfaces' nor 'nid': name its interface")
        return None
    if not _is_on(nid, net):
        schema.refuse(ni.line, f"nid {nid} is not on net {net}: put it under the net that it is on")
        return None
    return NetAdd(nids=[nid], tunables=tunables, cpts=cpts)


def _is_on(nid: str, net: str) -> bool:
    try:
        return Nid.parse(nid).net == Net.parse(net)
    except NidError:
        return True  # the node will say what is wrong with it


def _interfaces(schema: Schema, node: Node | None) -> list[str]:
    if node is None:
        return []
    if not isinstance(node, MapNode):
        schema.refuse(node.line, "'interfaces' holds numbered names, such as '0: eth0' on a line of its own")
        return []
    return [value.text for _, value in node.items if isinstance(value, ScalarNode)]


def _integers(schema: Schema, node: Node | None, what: str, names: tuple[str, ...]) -> dict[str, int]:
    if node is None:
        return {}
    fields = schema.fields(node, what, names)
    values = {name: schema.integer(fields, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


# peer --------------------------------------------------------------------------------------------------


def _peers(schema: Schema, node: Node) -> list[Step]:
    steps = []
    for item in schema.items(node, "peer"):
        fields = schema.fields(
            item, "peer", ("primary nid", "Multi-Rail", "peer ni", "seq_no"), ("peer state",)
        )
        primary = schema.text(fields, "primary nid", item, required=True)
        multi_rail = schema.boolean(fields, "Multi-Rail", True)
        nids = []
        for ni in schema.items(fields["peer ni"], "peer ni") if "peer ni" in fields else ():
            nid = schema.text(
                schema.fields(ni, "a peer ni", ("nid",), _PEER_NI_STATE), "nid", ni, required=True
            )
            if nid is not None:
                nids.append(nid)
        if primary is not None:
            request = PeerAdd(primary=primary, nids=nids, multi_rail=multi_rail)
            steps.append(Step(request, item.line, schema.integer(fields, "seq_no")))
    return steps


# global ------------------------------------------------------------------------------------------------


def _globals(schema: Schema, node: Node) -> list[Step]:
    fields = schema.fields(node, "global", GLOBALS)
    return _global_steps(schema, fields, node.line)


def _numa(schema: Schema, node: Node) -> list[Step]:
    fields = schema.fields(node, "numa", ("range",), ("CPTs",))
    return _global_steps(schema, {"numa_range": fields["range"]} if "range" in fields else {}, node.line)


def _global_steps(schema: Schema, fields: Mapping[str, Node], line: int) -> list[Step]:
    values = {name: schema.integer(fields, name) for name in fields}
    known = {name: value for name, value in values.items() if value is not None}
    return [Step(GlobalSet(known), line)] if known else []


# policies ----------------------------------------------------------------------------------------------


def _udsp(schema: Schema, node: Node) -> list[Step]:
    return [Step(rule, item.line, seq_no) for rule, item, seq_no in read_udsp(schema, node)]


def _selection(schema: Schema, node: Node) -> list[Step]:
    return [Step(rule, item.line, seq_no) for rule, item, seq_no in read_selection(schema, node)]


_SECTIONS: dict[str, Callable[[Schema, Node], list[Step]]] = {
    "net": _nets,
    "peer": _peers,
    "global": _globals,
    "numa": _numa,
    "udsp": _udsp,
    "selection": _selection,
}

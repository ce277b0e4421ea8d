"""The sections `net:` and `ip2nets:` of configuration files (spec lnetctl.md §4).

Beside today's form a net may be written as older releases print it (`net:` with the fields of one NI), as in
the Multi-Rail design (`net`, `intf`, `pattern`), or as a module parameter (`ip2net`).
"""

from __future__ import annotations

from collections.abc import Iterator

from ulnet.dlc.config_bond import BOND_KEYS, read_bond
from ulnet.dlc.legacy import LegacyError, read_ip2nets
from ulnet.dlc.model import Ip2netsRule, NetAdd, NetDel, NetMatch, NetShow, Request, Tunables
from ulnet.dlc.model_bond import BondAdd
from ulnet.dlc.schema import Schema
from ulnet.dlc.steps import Step, Verb
from ulnet.dlc.tunables import TUNABLES
from ulnet.dlc.yaml_in import MapNode, Node, ScalarNode, SeqNode
from ulnet.nid import Net, NetType, Nid, NidError
from ulnet.nid.expr import split_list

__all__ = ["COUNTERS", "SHOWN", "read_ip2nets_section", "read_nets"]

SHOWN = 4  # how much `import --show` prints, as the real tool
COUNTERS = (
    "statistics",
    "sent_stats",
    "received_stats",
    "dropped_stats",
    "health stats",
    "udsp info",
    "load",
)
_NI_STATE = (*COUNTERS, "status", "drained", "certificate expires", "dev cpt", "refcount", "peer_ni", "state")
_NI = ("nid", "interfaces", "tunables", "lnd tunables", "tcp bonding", "CPT", *BOND_KEYS)
_NET_TUNABLES = tuple(name for name, one in TUNABLES.items() if not one.driver)
_LND_TUNABLES = tuple(name for name, one in TUNABLES.items() if one.driver)
_OF_NET = ("tunables", "lnd tunables", "CPT")  # for each NI that does not say otherwise
_OTHER_LNDS = (
    *("auth_key", "traffic_class", "traffic_class_num"),
    *("prov_major_version", "prov_minor_version"),
)


def read_nets(schema: Schema, node: Node, verb: Verb) -> Iterator[Step]:
    """Each NI is a request of its own, bonding NIs come last. `lo`, which every node has, is passed over."""
    bonds: list[Step] = []
    for step in _read_nets(schema, node, verb):
        if isinstance(step.request, BondAdd):
            bonds.append(step)
        else:
            yield step
    yield from bonds


def _read_nets(schema: Schema, node: Node, verb: Verb) -> Iterator[Step]:
    for item in schema.items(node, "net"):
        keys = {key.text for key, _ in item.items}
        if "net" in keys and "net type" not in keys:
            yield from _flat_net(schema, item, verb)
        elif "ip2net" in keys:
            yield from _ip2net(schema, item, verb)
        else:
            yield from _net(schema, item, verb)


def _net(schema: Schema, item: MapNode, verb: Verb) -> Iterator[Step]:
    mark = schema.mark()
    fields = schema.fields(item, "net", ("net type", "local NI(s)", *_OF_NET, "seq_no"))
    given = _tunables(schema, fields, item)
    net = schema.text(fields, "net type", item, required=True)
    nis = fields.get("local NI(s)")
    seq_no = schema.integer(fields, "seq_no")
    if net == "lo" or net is None or not _is_net(schema, net, item.line) or not schema.good(mark):
        return
    if verb == "show":
        yield Step(NetShow(net, SHOWN), item.line, seq_no)
    elif nis is not None:
        for ni in schema.items(nis, "local NI(s)"):
            request = _ni(schema, net, ni, verb, given)
            if request is not None:
                yield Step(request, ni.line, seq_no)
    elif verb == "del":
        yield Step(NetDel(net=net), item.line, seq_no)
    else:
        schema.refuse(item.line, f"net {net} has no 'local NI(s)': list its NIs, each with 'interfaces'")


def _ni(
    schema: Schema, net: str, ni: MapNode, verb: Verb, of_net: tuple[Tunables, str | None]
) -> Request | None:
    mark = schema.mark()
    fields = schema.fields(ni, "a local NI", _NI, _NI_STATE)
    nid = schema.text(fields, "nid", ni)
    interfaces = _numbered(schema, fields.get("interfaces"), "interfaces", "eth0")
    tunables, cpts = _tunables(schema, fields, ni)
    bonding = _bonding(schema, fields, ni)
    if _is_bond(net, fields):
        if verb == "del":
            return NetDel(net=None if nid else net, nids=[nid] if nid else [])
        return read_bond(schema, net, _numbered(schema, fields.get("slaves"), "slaves", "*@tcp"), fields, ni)
    if not interfaces and nid is None:
        schema.refuse(ni.line, f"an NI of net {net} has neither 'interfaces' nor 'nid': name its interface")
    _check_nid(schema, nid, net, ni.line)
    if not schema.good(mark):
        return None
    nids = [nid] if nid is not None and not interfaces else []
    named = None if nids else net
    if verb == "del":
        return NetDel(net=named, interfaces=interfaces, nids=nids)
    prefer = nid if interfaces else None
    tunables, cpts = of_net[0] | tunables, of_net[1] if cpts is None else cpts
    return NetAdd(named, interfaces, nids, prefer, True, bonding, tunables, cpts)


def _flat_net(schema: Schema, item: MapNode, verb: Verb) -> Iterator[Step]:
    """One NI, or one rule: `net` with `interfaces` or `nid` (older releases), `intf`, `pattern`."""
    mark = schema.mark()
    names = ("net", *_NI, "intf", "pattern", "seq_no")
    fields = schema.fields(item, "net", names, _NI_STATE)
    net = schema.text(fields, "net", item, required=True)
    seq_no = schema.integer(fields, "seq_no")
    interfaces = _numbered(schema, fields.get("interfaces"), "interfaces", "eth0")
    interfaces += split_list(schema.text(fields, "intf", item) or "")
    nid = schema.text(fields, "nid", item)
    pattern = schema.text(fields, "pattern", item)
    tunables, cpts = _tunables(schema, fields, item)
    bonding = _bonding(schema, fields, item)
    if net is None or net == "lo" or not _is_net(schema, net, item.line):
        return
    _check_nid(schema, nid, net, item.line)
    if not schema.good(mark):
        return
    if verb == "show":
        yield Step(NetShow(net, SHOWN), item.line, seq_no)
    elif pattern is not None:
        rule = Ip2netsRule(net, interfaces, split_list(pattern), tunables, cpts)
        yield Step(NetMatch([rule], delete=verb == "del"), item.line, seq_no)
    elif verb == "del":
        nids = [nid] if nid is not None and not interfaces else []
        yield Step(NetDel(None if nids else net, interfaces, nids), item.line, seq_no)
    elif interfaces:
        yield Step(NetAdd(net, interfaces, [], nid, True, bonding, tunables, cpts), item.line, seq_no)
    elif nid is not None:
        yield Step(NetAdd(None, [], [nid], None, True, bonding, tunables, cpts), item.line, seq_no)
    else:
        schema.refuse(item.line, f"net {net} has neither 'intf', 'pattern' nor 'nid': name its interface")


def _ip2net(schema: Schema, item: MapNode, verb: Verb) -> Iterator[Step]:
    mark = schema.mark()
    names = ("net type", "ip2net", "tunables", "lnd tunables", "CPT", "seq_no")
    fields = schema.fields(item, "net", names)
    text = schema.text(fields, "ip2net", item, required=True)
    tunables, cpts = _tunables(schema, fields, item)
    seq_no = schema.integer(fields, "seq_no")
    try:
        rules = read_ip2nets(text or "", tunables, cpts)
    except LegacyError as bad:
        schema.refuse(item.line, str(bad))
    if not schema.good(mark):
        return
    if verb == "show":
        for net in dict.fromkeys(rule.net for rule in rules):
            yield Step(NetShow(net, SHOWN), item.line, seq_no)
    else:
        yield Step(NetMatch(rules, delete=verb == "del"), item.line, seq_no)


def read_ip2nets_section(schema: Schema, node: Node, verb: Verb) -> Iterator[Step]:
    """`ip2nets:`: one request for all rules, for it is enough that one of them matches this host."""
    rules: list[Ip2netsRule] = []
    line, seq_no = node.line, None
    for item in schema.items(node, "ip2nets"):
        mark = schema.mark()
        names = (
            "net-spec",
            "interfaces",
            "ip-range",
            "tunables",
            "lnd tunables",
            "CPT",
            *BOND_KEYS,
            "seq_no",
        )
        fields = schema.fields(item, "ip2nets", names)
        net = schema.text(fields, "net-spec", item, required=True)
        interfaces = _numbered(schema, fields.get("interfaces"), "interfaces", "eth0")
        ranges = _numbered(schema, fields.get("ip-range"), "ip-range", "10.0.*.*")
        tunables, cpts = _tunables(schema, fields, item)
        if not rules:
            line, seq_no = item.line, schema.integer(fields, "seq_no")
        bond = None
        if net is not None and "slaves" in fields:
            slaves = _numbered(schema, fields["slaves"], "slaves", "*@tcp")
            bond = read_bond(schema, net, slaves, fields, item)
        if bond is not None and net is not None and _is_net(schema, net, item.line) and schema.good(mark):
            rules.append(Ip2netsRule(net, ranges=ranges, bond=bond))
        elif net is not None and _is_net(schema, net, item.line) and schema.good(mark):
            rules.append(Ip2netsRule(net, interfaces, ranges, tunables, cpts))
    if rules and verb == "add":
        yield Step(NetMatch(rules, first_wins=True), line, seq_no)


def _is_net(schema: Schema, net: str, line: int) -> bool:
    try:
        Net.parse(net)
    except NidError as bad:
        schema.refuse(line, str(bad))
        return False
    return True


def _bonding(schema: Schema, fields: dict[str, Node], item: MapNode) -> bool | None:
    """`tcp bonding`, which older releases print of every NI, too."""
    value = schema.setting(fields, "tcp bonding")
    if value not in (None, 0, 1):
        schema.refuse(item.line, f"'tcp bonding' {value} is neither 0 nor 1: write one of them")
    return None if value is None else bool(value)


def _is_bond(net: str, fields: dict[str, Node]) -> bool:
    return "slaves" in fields or Net.parse(net).type == NetType.BOND


def _check_nid(schema: Schema, nid: str | None, net: str, line: int) -> None:
    try:
        if nid is not None and Nid.parse(nid).net != Net.parse(net):
            schema.refuse(line, f"nid {nid} is not on net {net}: put it under the net that it is on")
    except NidError:
        return  # the node will say what is wrong with it


def _numbered(schema: Schema, node: Node | None, what: str, example: str) -> list[str]:
    """The values of `0: …`, `1: …`, or of a list."""
    if node is None:
        return []
    if isinstance(node, MapNode):
        values = [value for _, value in node.items]
    elif isinstance(node, SeqNode):
        values = list(node.items)
    else:
        schema.refuse(
            node.line, f"'{what}' holds numbered names, such as '0: {example}' on a line of its own"
        )
        return []
    found = []
    for value in values:
        if isinstance(value, ScalarNode) and value.text:
            found.append(value.text)
        else:
            schema.refuse(value.line, f"each of '{what}' is one word, such as '0: {example}'")
    return found


def _tunables(schema: Schema, fields: dict[str, Node], item: MapNode) -> tuple[Tunables, str | None]:
    nets = _integers(schema, fields.get("tunables"), "tunables", _NET_TUNABLES, ("CPT",))
    drivers = _integers(schema, fields.get("lnd tunables"), "lnd tunables", _LND_TUNABLES, _OTHER_LNDS)
    shown = any(key.text == "status" for key, _ in item.items)
    if shown and str(drivers.get("timeout")) == schema.lnd_timeout:
        del drivers["timeout"]  # a full export says what is in force, given or not
    cpts = fields.get("CPT")
    if isinstance(cpts, SeqNode):
        words = [one.text for one in cpts.items if isinstance(one, ScalarNode)]
        return nets | drivers, f"[{','.join(words)}]"
    return nets | drivers, schema.text(fields, "CPT", item)


def _value(schema: Schema, fields: dict[str, Node], name: str) -> int | None:
    """A tunable, which may be written by a word."""
    node = fields.get(name)
    one = TUNABLES[name]
    found = one.read(node.text) if isinstance(node, ScalarNode) else None
    if found is not None:
        return found
    return schema.setting(fields, name) if one.flag else schema.integer(fields, name)


def _integers(
    schema: Schema, node: Node | None, what: str, names: tuple[str, ...], ignored: tuple[str, ...]
) -> dict[str, int]:
    if node is None:
        return {}
    fields = schema.fields(node, what, names, ignored)
    values = {name: _value(schema, fields, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}

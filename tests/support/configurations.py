"""Nodes with a driver that takes every NI, what is imported on them, and configurations of all entities."""

from __future__ import annotations

import errno
import re
from typing import Any

import msgspec
import yaml
from hypothesis import strategies as st

from ulnet.core.lnd import Lnd
from ulnet.core.ni import NI
from ulnet.core.status import LNetError
from ulnet.dlc import model
from ulnet.dlc.config import Verb, read_config
from ulnet.dlc.errors import DlcError, ErrorItem
from ulnet.dlc.importing import importing
from ulnet.dlc.model import Request
from ulnet.dlc.protocol import HEADER_SIZE, Answer, Reply, decode_reply, encode_reply
from ulnet.dlc.yaml_out import emit_document
from ulnet.host import Address, Link, NumaNode, Topology
from ulnet.nid import NetType, Nid
from ulnet.node import Node
from ulnet.node.admin import Admin

__all__ = ["LINKS", "Driver", "configurations", "content", "do", "done", "exported", "new_node"]

LINKS = [
    Link("lo", 1, addresses=(Address("127.0.0.1", 8),), loopback=True),
    Link("eth0", 2, addresses=(Address("10.0.0.1", 24),)),
    Link("eth1", 3, addresses=(Address("10.1.0.1", 24), Address("10.1.0.2", 24))),
    Link("eth2", 4, up=False, addresses=(Address("10.2.0.1", 24),)),
    Link("ib0", 5, addresses=(Address("10.3.0.1", 24),)),
]
TOPOLOGY = Topology((NumaNode(0, (0,), (10, 20)), NumaNode(1, (1,), (20, 10))))


class Driver:
    """A driver that takes every NI, but those named in `broken`; `up` are the NIDs of those it has."""

    name = "tcp"
    net_type = NetType.TCP.value
    reports_timeout = True

    def __init__(self) -> None:
        self.up: list[str] = []
        self.broken: set[str] = set()

    def startup(self, ni: NI) -> None:
        if str(ni.nid) in self.broken:
            raise LNetError(errno.EADDRINUSE, f"{ni.nid}: port 988 is taken")
        self.up.append(str(ni.nid))

    def shutdown(self, ni: NI) -> None:
        self.up.remove(str(ni.nid))

    def retune(self, ni: NI, timeout: float) -> None:
        pass

    def access_changed(self, ni: NI) -> None:
        pass

    def verify(self, ni: NI, nid: Nid) -> bool:
        return True

    def send(self, ni: NI, msg: Any) -> None:
        raise NotImplementedError

    def recv(self, ni: NI, rx: object, msg: Any, buffers: list[memoryview], mlen: int, rlen: int) -> None:
        raise NotImplementedError


def new_node(driver: Lnd | None = None) -> Node:
    return Node(topology=TOPOLOGY, drivers=lambda core: [driver or Driver()])


async def reply_to(admin: Admin, request: Request) -> Reply:
    """As over the control socket."""
    try:
        answer = await admin.handle(request)
    except DlcError as refused:
        answer = Answer(errors=[refused.item])
    return decode_reply(encode_reply(answer)[HEADER_SIZE:])


async def do(admin: Admin, text: str, verb: Verb = "add") -> tuple[dict[str, Any], list[ErrorItem]]:
    work = importing(read_config(text, verb))
    try:
        request = next(work)
        while True:
            request = work.send(await reply_to(admin, request))
    except StopIteration as end:
        document, errors = end.value
        return document, errors


async def done(admin: Admin, text: str, verb: Verb = "add") -> dict[str, Any]:
    document, errors = await do(admin, text, verb)
    assert errors == []
    return document


numbers = st.integers(0, 999)
tunables = st.fixed_dictionaries(
    {},
    optional={
        "peer_timeout": st.integers(0, 500),
        "peer_credits": st.integers(1, 64),
        "peer_buffer_credits": st.integers(0, 64),
        "credits": st.integers(64, 512),
    },
)
drivers = st.fixed_dictionaries(
    {},
    optional={
        "conns_per_peer": st.integers(1, 127),
        "timeout": st.integers(301, 999),  # none that follows from settings: see the manual, `apply`
        "tos": st.integers(-1, 255),
    },
)
cpts = st.sampled_from([None, "[0]", "[1]", "[0,1]"])


@st.composite
def nets(draw: st.DrawFn) -> list[dict[str, Any]]:
    items = []
    for number in draw(st.lists(st.integers(0, 9), unique=True, max_size=3)):
        nis: list[dict[str, Any]] = []
        if draw(st.booleans()):
            names = draw(st.lists(st.sampled_from(["eth0", "eth1", "ib0"]), unique=True, min_size=1))
            one = {"interfaces": dict(enumerate(names)), "tcp bonding": 1, "lnd tunables": draw(drivers)}
            items.append({"net type": f"tcp{number}", "local NI(s)": [one]})
            continue
        for name in draw(st.lists(st.sampled_from(["eth0", "eth1", "ib0"]), unique=True, min_size=1)):
            ni: dict[str, Any] = {"interfaces": {0: name}, "lnd tunables": draw(drivers)}
            ni["tcp bonding"] = 0
            if name == "eth1" and draw(st.booleans()):
                ni["nid"] = f"10.1.0.2@tcp{number}"
            if (chosen := draw(cpts)) is not None:
                ni["CPT"] = chosen
            nis.append(ni)
        if draw(st.booleans()):
            nis.append({"nid": f"127.0.0.{number + 1}@tcp{number}", "tcp bonding": 0})
        nis[0]["tunables"] = draw(tunables)
        items.append({"net type": f"tcp{number}", "local NI(s)": nis})
    return items


@st.composite
def configured_peers(draw: st.DrawFn) -> list[dict[str, Any]]:
    items = []
    for at in range(draw(st.integers(0, 4))):
        nets_of_peer = draw(st.lists(st.integers(0, 5), unique=True, min_size=1, max_size=4))
        named = [f"10.9.{at}.{net + 1}@tcp{net}" for net in nets_of_peer]
        multi_rail = draw(st.booleans())
        if multi_rail and draw(st.booleans()):
            named.append(f"10.9.{at}.100@tcp{nets_of_peer[0]}")
        item: dict[str, Any] = {"primary nid": named[0], "Multi-Rail": multi_rail}
        item["peer ni"] = [{"nid": nid} for nid in named]
        if draw(st.booleans()):
            item["peer state"] = 0x100000
        items.append(item)
    return items


@st.composite
def bonding(draw: st.DrawFn, nids: list[str]) -> dict[str, Any]:
    """A bonding NI over some of the NIs."""
    slaves: list[str] = draw(st.lists(st.sampled_from(nids), unique=True, min_size=1, max_size=3))
    bond: dict[str, Any] = {"mode": draw(st.sampled_from(["standby", "loadbalance"]))}
    if bond["mode"] == "standby":
        bond["failback"] = draw(st.sampled_from(["return", "stay"]))
    elif draw(st.booleans()):
        bond["weights"] = ",".join(str(draw(st.integers(1, 9))) for _ in slaves)
    if draw(st.booleans()):
        bond["keepalive"] = draw(st.integers(1, 60))
    if draw(st.booleans()):
        bond["bds"] = {0: "10.9.9.9@tcp"}
    return {"net type": "bond0", "local NI(s)": [{"slaves": dict(enumerate(slaves)), "bond": bond}]}


ADDRESSES = {"eth0": "10.0.0.1", "eth1": "10.1.0.1", "ib0": "10.3.0.1"}


def nids_of(nets: list[dict[str, Any]]) -> list[str]:
    """The NIDs of NIs, but of loopback's."""
    return [
        ni.get("nid", f"{ADDRESSES[ni['interfaces'][0]]}@{net['net type']}")
        for net in nets
        for ni in net["local NI(s)"]
        if "interfaces" in ni
    ]


router_settings = st.fixed_dictionaries(
    {"enable": st.integers(0, 1)},
    optional={
        "alive_router_check_interval": st.integers(0, 99),
        "check_routers_before_use": st.integers(0, 1),
        "peer_buffer_credits": st.integers(0, 9),
    },
)
buffers = st.fixed_dictionaries({}, optional={"tiny": st.integers(512, 2048), "large": st.integers(256, 999)})
rules = st.lists(
    st.one_of(
        st.builds(lambda n, p: {"src": f"tcp{n}", "action": {"priority": p}}, st.integers(0, 5), numbers),
        st.builds(lambda n, p: {"dst": f"10.9.{n}.*@tcp", "priority": p}, st.integers(0, 5), numbers),
        st.builds(lambda n: {"src": "10.0.0.1@tcp", "dst": f"10.9.{n}.[1-9/2]@tcp[1,3]"}, st.integers(0, 5)),
        st.builds(lambda n: {"dst": f"tcp{n}", "rte": "10.9.0.1@tcp"}, st.integers(0, 5)),
        st.builds(lambda n, w: {"src": f"tcp{n}", "weight": w}, st.integers(6, 9), st.integers(1, 9)),
    ),
    max_size=5,
    unique_by=lambda rule: (rule.get("src"), rule.get("dst"), rule.get("rte")),
)
globals_ = st.fixed_dictionaries(
    {},
    optional={
        "numa_range": numbers,
        "max_interfaces": st.integers(16, 5000),
        "discovery": st.integers(0, 1),
        "drop_asym_route": st.integers(0, 1),
        "retry_count": st.integers(0, 9),
        "transaction_timeout": st.integers(10, 300),
        "health_sensitivity": st.integers(1, 1000),
        "router_sensitivity": st.integers(0, 100),
        "response_tracking": st.integers(0, 3),
        "recovery_limit": numbers,
        "max_recovery_ping_interval": st.integers(1, 999),
        "use_tcp_bonding": st.integers(0, 1),
        "selftest": st.integers(0, 1),
    },
)


rules_of_access = st.lists(
    st.builds(
        lambda what, who: f"{what}{who}",
        st.sampled_from(["", "connect=", "ping=", "push=", "portal4=", "portal[5-9]=", "portal*="]),
        st.sampled_from(["eth0", "10.9.0.[1-4]@tcp", "*@tcp3", "10.9.1.1@tcp0 ib0", "10.8.0.0/16@tcp"]),
    ),
    min_size=1,
    max_size=4,
)
access = st.fixed_dictionaries({}, optional={"allow": rules_of_access, "deny": rules_of_access})


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    whole: dict[str, Any] = {"net": draw(nets()), "peer": draw(configured_peers())}
    local = [int(net["net type"][3:]) for net in whole["net"]]
    if local:
        gateways = st.builds(
            lambda net, last: f"10.9.{last // 10}.{last % 10 + 1}@tcp{net}",
            st.sampled_from(local),
            st.integers(0, 49),
        )
        route = st.fixed_dictionaries(
            {"net": st.sampled_from(["tcp90", "tcp91", "o2ib"]), "gateway": gateways},
            optional={"hop": st.integers(1, 255), "priority": st.integers(0, 9)},
        )
        unique = st.lists(route, max_size=3, unique_by=lambda one: (one["net"], one["gateway"]))
        whole["route"] = draw(unique)
    nids = nids_of(whole["net"])
    if draw(st.booleans()) and nids:
        whole["net"].append(draw(bonding(nids)))
    if draw(st.booleans()):
        whole["routing"] = draw(router_settings)
        if whole["routing"]["enable"]:
            whole["buffers"] = draw(buffers)
    whole["global"] = draw(globals_)
    if lists := draw(access):
        whole["access"] = lists
    whole["udsp"] = draw(rules)
    return whole


async def exported(admin: Admin, backup: bool) -> str:
    answer = await admin.handle(model.Export(backup=backup))
    text = emit_document(msgspec.to_builtins(answer.document, str_keys=False))
    text = re.sub(r"incarnation: \d+", "incarnation: 0", text)  # of a bond: each life has another
    # Of the state word only the lock of the primary NID, and whether it was configured, are configuration.
    return re.sub(r"peer state: (\d+)", lambda match: f"peer state: {int(match[1]) & 0x100008}", text)


def content(text: str) -> Any:
    """Routes to one net have no order: a new one takes any place, as in the kernel. Nor have peers: routes
    come before them, and make peers of gateways.
    """
    document = yaml.safe_load(text)
    document["peer"] = sorted(document.get("peer") or [], key=lambda one: str(one["primary nid"]))
    document["route"] = sorted(document.get("route") or [], key=lambda one: (one["net"], one["gateway"]))
    return document


def still(text: str) -> Any:
    """Without what pings to gateways change meanwhile: nodes go on while they export."""
    document = content(text)
    for peer in document["peer"]:
        peer["peer ni"] = [{"nid": one["nid"]} for one in peer["peer ni"]]
    for one in document["route"]:
        one.pop("state", None)
    return document

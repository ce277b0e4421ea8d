"""Files of /etc/modprobe.d: what they say of LNet as requests (spec lnetctl.md §2, module parameters)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from ulnet.dlc.legacy import LegacyError, read_ip2nets, read_networks, read_routes
from ulnet.dlc.model import (
    BuffersSet,
    GlobalSet,
    Ip2netsRule,
    NetAdd,
    NetMatch,
    Request,
    RouterSet,
    RoutingSet,
    Tunables,
)
from ulnet.dlc.settings import BUFFERS, ROUTER, SETTINGS
from ulnet.dlc.tunables import TUNABLES
from ulnet.nid import Net, NetType, NidError

__all__ = ["Parameters", "is_setting", "module_requests", "read_modprobe", "tune"]

_LONGEST = 1 << 20
# Parameters of the module lnet that are settings today.
_SETTINGS = {one.parameter: name for name, one in SETTINGS.items() if one.parameter}
_BUFFERS = {f"{size}_router_buffers": size for size in BUFFERS}
# Parameters of drivers that are tunables of their nets today.
_KSOCKLND = {
    one.parameter or name: name for name, one in TUNABLES.items() if NetType.TCP in one.nets or not one.driver
}
_KO2IBLND = {one.ko2iblnd or name: name for name, one in TUNABLES.items()}
# Parameters of ksocklnd, and of lnet's acceptor, that are the driver's own (`ulnet.lnd.tcp.TcpParams`):
# numbers, and what is on or off; and those of ksocklnd without effect.
_TCP = (
    *("keepalive", "keepalive_idle", "keepalive_intvl", "keepalive_count", "min_bulk"),
    *("min_reconnectms", "max_reconnectms", "tx_buffer_size", "rx_buffer_size"),
)
_TCP_FLAGS = ("typed_conns", "enable_csum", "round_robin", "nonblk_zcack", "eager_ack")
_ACCEPTOR = ("accept_backlog", "accept_timeout")
_KERNELS_TCP = {
    *("inject_csum_error", "nagle", "nconnds", "nconnds_max", "nscheds", "skip_mr_route_setup"),
    "zc_min_payload",
}
# Parameters of ko2iblnd that are the driver's own (`ulnet.lnd.o2ib.O2ibParams`), and those without effect.
_O2IB = ("service", "cksum", "keepalive", "retry_count", "rnr_retry_count", "use_privileged_port")
_KERNELS = {
    *("dev_failover", "ib_mtu", "ipif_name", "nscheds", "require_privileged_port", "use_fastreg_gaps"),
    "wrq_sge",
}
_DAEMON = {
    "accept": "--accept",
    "accept_port": "--accept-port",
    "accept_port_bulk": "--accept-port-bulk",
    "cpu_npartitions": "--cpu-npartitions",
    "cpu_pattern": "--cpu-pattern",
}
_WITHOUT_EFFECT = {
    "config_on_load": "lnetd does what it is told when it starts",
}
_LISTS = ("networks", "ip2nets", "routes")  # their items may be on lines of their own
_MODULES = ("lnet", "ksocklnd", "libcfs", "ko2iblnd", "kbondlnd")


class Parameters(NamedTuple):
    """Requests in the order to be made, what else should be known of the text, and what in it is unknown."""

    requests: list[Request]
    notes: list[str]
    unknown: Sequence[str] = ()
    drivers: Mapping[int, Tunables] = {}  # what nets have that say nothing else, by type
    tcp: Mapping[str, int] = {}  # parameters of the TCP driver
    o2ib: Mapping[str, int] = {}  # parameters of the o2ib driver


def read_modprobe(text: str, together: bool = False) -> Parameters:
    """What `options lnet …`, `options ksocklnd …` and `options libcfs …` ask for. Raises LegacyError.

    Of a parameter that is given several times the last one counts, as for the kernel. With `together` those
    that list nets or routes add up, and nets may be given both by name and by address.
    """
    if len(text) > _LONGEST:
        raise LegacyError(f"the file has {len(text)} characters: {_LONGEST} are the most")
    given: dict[str, dict[str, str]] = {module: {} for module in _MODULES}
    notes: list[str] = []
    unknown: list[str] = []
    for number, line in enumerate(re.sub(r"\\\n", " ", text).splitlines(), 1):
        if not line.strip().startswith("options"):
            continue  # aliases, install lines, comments
        try:
            words = shlex.split(line)
        except ValueError as bad:
            raise LegacyError(f"line {number}: {bad}: close the quotation mark") from None
        if words[0] != "options" or len(words) < 2:
            continue
        if words[1] not in _MODULES:
            if close := get_close_matches(words[1], _MODULES, n=1, cutoff=0.8):
                unknown.append(f"line {number}: {words[1]} is no module of LNet; did you mean {close[0]}?")
            continue
        for word in words[2:]:
            name, equals, value = word.partition("=")
            if not equals:
                raise LegacyError(f"line {number}: {word!r} is no parameter: write NAME=VALUE")
            before = given[words[1]].get(name, value)
            adds_up = together and words[1] == "lnet" and name in _LISTS
            if before != value:
                rule = "modprobe takes the last one, here they add up" if adds_up else "the last one counts"
                notes.append(f"line {number}: {name} of {words[1]} is given twice: {rule}")
                if adds_up:
                    value = f"{before}\n{value}"
            given[words[1]][name] = value
    found = module_requests(**given, together=together)
    return found._replace(notes=notes + found.notes, unknown=[*unknown, *found.unknown])


_LNET = {
    *_SETTINGS,
    *_BUFFERS,
    *ROUTER,
    "lnet_peer_discovery_disabled",
    *_ACCEPTOR,
    "networks",
    "ip2nets",
    "routes",
    "forwarding",
}


def module_requests(
    lnet: dict[str, str],
    ksocklnd: dict[str, str] | None = None,
    libcfs: dict[str, str] | None = None,
    ko2iblnd: dict[str, str] | None = None,
    kbondlnd: dict[str, str] | None = None,
    *,
    together: bool = False,
) -> Parameters:
    """The requests that parameters of the modules come to; `together` as above. Raises LegacyError."""
    tunables: dict[int, Tunables] = {
        NetType.TCP: _tunables(ksocklnd or {}, _KSOCKLND),
        NetType.O2IB: _tunables(ko2iblnd or {}, _KO2IBLND),
    }
    requests = _settings(lnet)
    notes: list[str] = []
    if lnet.get("networks") and lnet.get("ip2nets"):
        if together:
            notes.append(
                "networks= and ip2nets= are both given: the module takes one of them, here they add up"
            )
        else:
            raise LegacyError("networks= and ip2nets= exclude each other: leave one of them")
    if lnet.get("networks"):
        requests += read_networks(lnet["networks"])
    if lnet.get("ip2nets"):
        requests.append(NetMatch(read_ip2nets(lnet["ip2nets"])))
    tune(requests, tunables)
    requests += _routing(lnet)
    unknown: list[str] = []
    of_tcp = {*_KSOCKLND, *_TCP, *_TCP_FLAGS, *_KERNELS_TCP}
    of_o2ib = {*_KO2IBLND, *_O2IB, *_KERNELS}
    modules = ((ksocklnd, of_tcp), (lnet, _LNET), (libcfs, ()), (ko2iblnd, of_o2ib), (kbondlnd, ()))
    for module, names in modules:
        for name, value in (module or {}).items():
            if name in _DAEMON:
                notes.append(f"{name}: start lnetd with {_DAEMON[name]} {shlex.quote(value)}")
            elif name in _WITHOUT_EFFECT:
                notes.append(f"{name}: without effect; {_WITHOUT_EFFECT[name]}")
            elif name not in names:
                unknown.append(_nobody_knows(name, value, names))
    for given, kernels in ((ksocklnd or {}, _KERNELS_TCP), (ko2iblnd or {}, _KERNELS)):
        notes += [f"{name}: without effect; it is the kernel's own" for name in given if name in kernels]
    return Parameters(requests, notes, unknown, tunables, _tcp(lnet, ksocklnd or {}), _o2ib(ko2iblnd or {}))


def _tcp(lnet: dict[str, str], ksocklnd: dict[str, str]) -> dict[str, int]:
    """The TCP driver's own parameters, and its acceptor's. Raises LegacyError."""
    found = {name: _number(name, ksocklnd[name]) for name in _TCP if name in ksocklnd}
    found |= {name: bool(_number(name, ksocklnd[name])) for name in _TCP_FLAGS if name in ksocklnd}
    return found | {name: _number(name, lnet[name]) for name in _ACCEPTOR if name in lnet}


def _o2ib(ko2iblnd: dict[str, str]) -> dict[str, int]:
    """The o2ib driver's own parameters. Raises LegacyError."""
    return {name: _number(name, ko2iblnd[name]) for name in _O2IB if name in ko2iblnd}


def _settings(lnet: dict[str, str]) -> list[Request]:
    """The node-wide settings among lnet's parameters."""
    settings = {_SETTINGS[name]: _number(name, value) for name, value in lnet.items() if name in _SETTINGS}
    if "lnet_peer_discovery_disabled" in lnet:
        name = "lnet_peer_discovery_disabled"
        settings["discovery"] = 0 if _number(name, lnet[name]) else 1
    return [GlobalSet(settings)] if settings else []


def _routing(lnet: dict[str, str]) -> list[Request]:
    """Routes, what routers and their clients do, and buffers. Raises LegacyError."""
    requests: list[Request] = []
    watching = {name: _number(name, value) for name, value in lnet.items() if name in ROUTER}
    if watching:
        requests.append(RouterSet(watching))
    if lnet.get("routes"):
        requests += read_routes(lnet["routes"])
    forwarding = lnet.get("forwarding")
    if forwarding not in (None, "", "enabled", "disabled"):
        raise LegacyError(f"forwarding={forwarding} is neither enabled nor disabled: write one of them")
    if forwarding:
        requests.append(RoutingSet(forwarding == "enabled"))
    buffers = {_BUFFERS[name]: _number(name, value) for name, value in lnet.items() if name in _BUFFERS}
    if buffers:
        requests.append(BuffersSet(**buffers))
    return requests


def is_setting(request: Request) -> bool:
    """Whether a parameter is in force whatever else is configured; nets, routes and forwarding are not."""
    return isinstance(request, GlobalSet | RouterSet)


def tune(requests: Iterable[Request], drivers: Mapping[int, Tunables]) -> None:
    """Give nets the parameters of their driver, where they have none of their own."""
    for request in requests:
        for one in request.rules if isinstance(request, NetMatch) else [request]:
            if isinstance(one, NetAdd | Ip2netsRule):
                one.tunables = {**drivers.get(_type_of(one), {}), **one.tunables}


def _type_of(one: NetAdd | Ip2netsRule) -> int:
    """The type of its net; -1 where it names none that there is."""
    text = one.net
    if text is None and isinstance(one, NetAdd) and one.nids:
        text = one.nids[0].rpartition("@")[2]
    try:
        return Net.parse(text or "").type
    except NidError:
        return -1


def _nobody_knows(name: str, value: str, known: Collection[str]) -> str:
    close = get_close_matches(name, known, n=1, cutoff=0.8)
    question = f"; did you mean {close[0]}?" if close else ""
    return f"{name}={value}: nothing in ulnet corresponds to it{question}"


def _tunables(parameters: dict[str, str], names: dict[str, str]) -> Tunables:
    return {names[name]: _number(name, value) for name, value in parameters.items() if name in names}


def _number(name: str, value: str) -> int:
    if not re.fullmatch(r"-?(?:[0-9]{1,9}|0[xX][0-9a-fA-F]{1,7})", value):
        raise LegacyError(f"{name}={value} is not a number: write digits, such as {name}=1")
    return int(value, 0 if "x" in value.lower() else 10)

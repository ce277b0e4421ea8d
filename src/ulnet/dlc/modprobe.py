"""Files of /etc/modprobe.d: what they say of LNet as requests (spec lnetctl.md §2, module parameters)."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from ulnet.dlc.legacy import LegacyError, read_ip2nets, read_networks, read_routes
from ulnet.dlc.model import BuffersSet, GlobalSet, NetMatch, Request, RouterSet, RoutingSet, Tunables

__all__ = ["Parameters", "module_requests", "read_modprobe"]

_LONGEST = 1 << 20
# Parameters of the module lnet that are settings today.
_SETTINGS = {
    "lnet_numa_range": "numa_range",
    "lnet_interfaces_max": "max_interfaces",
    "lnet_drop_asym_route": "drop_asym_route",
    "lnet_retry_count": "retry_count",
    "lnet_transaction_timeout": "transaction_timeout",
    "lnet_health_sensitivity": "health_sensitivity",
    "lnet_recovery_interval": "recovery_interval",
    "router_sensitivity_percentage": "router_sensitivity",
    "lnet_response_tracking": "response_tracking",
    "lnet_recovery_limit": "recovery_limit",
    "lnet_max_recovery_ping_interval": "max_recovery_ping_interval",
    "use_tcp_bonding": "use_tcp_bonding",
}
_BUFFERS = {f"{size}_router_buffers": size for size in ("tiny", "small", "large")}
_ROUTER = (
    *("alive_router_check_interval", "router_ping_timeout", "check_routers_before_use"),
    *("avoid_asym_router_failure", "peer_buffer_credits"),
)
# Parameters of ksocklnd that are tunables of tcp nets today.
_TUNABLES = {
    **{name: name for name in ("peer_timeout", "peer_credits", "peer_buffer_credits", "credits", "tos")},
    "conns_per_peer": "conns_per_peer",
    "sock_timeout": "timeout",
}
_DAEMON = {
    "accept": "--accept",
    "accept_port": "--accept-port",
    "cpu_npartitions": "--cpu-npartitions",
    "cpu_pattern": "--cpu-pattern",
}
_WITHOUT_EFFECT = {
    "config_on_load": "lnetd does what it is told when it starts",
}
_MODULES = ("lnet", "ksocklnd", "libcfs", "ko2iblnd")


class Parameters(NamedTuple):
    """Requests in the order to be made, and what else should be known of the text."""

    requests: list[Request]
    notes: list[str]


def read_modprobe(text: str) -> Parameters:
    """What `options lnet …`, `options ksocklnd …` and `options libcfs …` ask for. Raises LegacyError."""
    if len(text) > _LONGEST:
        raise LegacyError(f"the file has {len(text)} characters: {_LONGEST} are the most")
    given: dict[str, dict[str, str]] = {module: {} for module in _MODULES}
    for number, line in enumerate(re.sub(r"\\\n", " ", text).splitlines(), 1):
        if not line.strip().startswith("options"):
            continue  # aliases, install lines, comments
        try:
            words = shlex.split(line)
        except ValueError as bad:
            raise LegacyError(f"line {number}: {bad}: close the quotation mark") from None
        if words[0] != "options" or len(words) < 2 or words[1] not in _MODULES:
            continue
        for word in words[2:]:
            name, equals, value = word.partition("=")
            if not equals:
                raise LegacyError(f"line {number}: {word!r} is no parameter: write NAME=VALUE")
            given[words[1]][name] = value
    return module_requests(**given)


def module_requests(
    lnet: dict[str, str],
    ksocklnd: dict[str, str] | None = None,
    libcfs: dict[str, str] | None = None,
    ko2iblnd: dict[str, str] | None = None,
) -> Parameters:
    """The requests that parameters of the modules come to. Raises LegacyError."""
    notes: list[str] = []
    tunables = _tunables(ksocklnd or {}, notes)
    requests: list[Request] = []
    settings = {_SETTINGS[name]: _number(name, value) for name, value in lnet.items() if name in _SETTINGS}
    if "lnet_peer_discovery_disabled" in lnet:
        name = "lnet_peer_discovery_disabled"
        settings["discovery"] = 0 if _number(name, lnet[name]) else 1
    if settings:
        requests.append(GlobalSet(settings))
    if lnet.get("networks") and lnet.get("ip2nets"):
        raise LegacyError("networks= and ip2nets= exclude each other: leave one of them")
    if lnet.get("networks"):
        requests += read_networks(lnet["networks"], tunables)
    if lnet.get("ip2nets"):
        rules = read_ip2nets(lnet["ip2nets"], tunables)
        requests.append(NetMatch(rules, first_wins=True))
    watching = {name: _number(name, value) for name, value in lnet.items() if name in _ROUTER}
    if watching:
        requests.append(RouterSet(watching))
    if lnet.get("routes"):
        requests += read_routes(lnet["routes"])
    if lnet.get("forwarding") in ("enabled", "disabled"):
        requests.append(RoutingSet(lnet["forwarding"] == "enabled"))
    buffers = {_BUFFERS[name]: _number(name, value) for name, value in lnet.items() if name in _BUFFERS}
    if buffers:
        requests.append(BuffersSet(**buffers))
    known = {
        *_SETTINGS,
        *_BUFFERS,
        *_ROUTER,
        "lnet_peer_discovery_disabled",
        "networks",
        "ip2nets",
        "routes",
        "forwarding",
    }
    for name, value in {**{n: v for n, v in lnet.items() if n not in known}, **(libcfs or {})}.items():
        notes.append(_note(name, value))
    if ko2iblnd:
        notes.append(f"ko2iblnd: {', '.join(ko2iblnd)}: o2ib nets are not built yet in this version of ulnet")
    return Parameters(requests, notes)


def _note(name: str, value: str) -> str:
    if name in _DAEMON:
        return f"{name}: start lnetd with {_DAEMON[name]} {shlex.quote(value)}"
    if name in _WITHOUT_EFFECT:
        return f"{name}: without effect; {_WITHOUT_EFFECT[name]}"
    return f"{name}={value}: nothing in ulnet corresponds to it"


def _tunables(ksocklnd: dict[str, str], notes: list[str]) -> Tunables:
    values = {_TUNABLES[name]: _number(name, value) for name, value in ksocklnd.items() if name in _TUNABLES}
    notes += [_note(name, value) for name, value in ksocklnd.items() if name not in _TUNABLES]
    return Tunables(**values)


def _number(name: str, value: str) -> int:
    if not re.fullmatch(r"-?(?:[0-9]{1,9}|0[xX][0-9a-fA-F]{1,7})", value):
        raise LegacyError(f"{name}={value} is not a number: write digits, such as {name}=1")
    return int(value, 0 if "x" in value.lower() else 10)

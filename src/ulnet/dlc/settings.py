"""The node-wide settings, those of routers, and router buffers: what words, files, parameters, documents,
differences and rules know of each.

`GlobalSettings` and `RoutingSettings` of the core have a field for each setting.
"""

from __future__ import annotations

from errno import EINVAL, ENODATA
from typing import Final, NamedTuple

__all__ = ["BUFFERS", "READ_ONLY", "ROUTER", "SETTINGS", "NodeSetting", "RouterSetting"]


class NodeSetting(NamedTuple):
    """A node-wide setting, in the order of documents; without `help` lnetctl has no word that sets it.

    `parameter` is its name in the module lnet, `name` the one that it goes by if that is another, `example` a
    value to show. `read_only`: files may have it, and it changes nothing. `own`: kernel nodes have no such
    setting; it is shown where it is not the default. `added`: a part above the node keeps it. `restored`:
    `import --del` makes it the default. `error` is how lnetctl files a value that is refused.
    """

    help: str
    default: int = 0
    least: int = 0
    most: int = 2**31 - 1
    example: int = 1
    parameter: str = ""
    name: str = ""
    read_only: bool = False
    own: bool = False
    added: bool = False
    restored: bool = False
    error: int = EINVAL


class RouterSetting(NamedTuple):
    """A setting of routers and their clients, under the name that the module lnet has for it.

    `word` is lnetctl's where that is another.
    """

    help: str
    example: int = 1
    word: str = ""


SETTINGS: Final = {
    "numa_range": NodeSetting(
        "NIs within this NUMA distance count as equally near; at least 0",
        most=2**32 - 1,
        example=10,
        parameter="lnet_numa_range",
        restored=True,
    ),
    "max_interfaces": NodeSetting(
        *("how many NIs there may be; below 16 it is the default, 4096", 4096),
        example=100,
        parameter="lnet_interfaces_max",
        restored=True,
    ),
    "max_intf": NodeSetting("the same as max_interfaces", example=100, name="max_interfaces"),
    "discovery": NodeSetting(
        *("learn the NIDs of peers: 1, or 0 not to; verify only compares them", 1, 0, 2),  # 2: verify
        restored=True,
    ),
    "drop_asym_route": NodeSetting(
        "drop messages that came by another router than ours: 1, or 0 not to",
        most=1,
        parameter="lnet_drop_asym_route",
        restored=True,
    ),
    "retry_count": NodeSetting(
        *("how often a message is sent again; less than transaction_timeout", 2),
        example=3,
        parameter="lnet_retry_count",
        error=ENODATA,
    ),
    "transaction_timeout": NodeSetting(
        *("seconds for an answer; more than retry_count", 150, 1),
        example=60,
        parameter="lnet_transaction_timeout",
        error=ENODATA,
    ),
    "health_sensitivity": NodeSetting(
        *("how much a failure lowers health, 0 to 1000; 0 turns health off", 100, 0, 1000, 50),
        parameter="lnet_health_sensitivity",
        error=ENODATA,
    ),
    "recovery_interval": NodeSetting(
        *("deprecated: accepted, and changes nothing", 1),
        parameter="lnet_recovery_interval",
        read_only=True,
    ),
    "router_sensitivity": NodeSetting(
        *("deprecated: percent, 0 to 100", 100, 0, 100, 50),
        parameter="router_sensitivity_percentage",
        error=ENODATA,
    ),
    "lnd_timeout": NodeSetting("", read_only=True),
    "response_tracking": NodeSetting(
        *("expect answers of GETs (1), PUTs (2), both (3), none but LNet's own (0)", 3, 0, 3, 3),
        parameter="lnet_response_tracking",
    ),
    "recovery_limit": NodeSetting(
        "seconds after which recovery gives up; 0 is never",
        example=3600,
        parameter="lnet_recovery_limit",
    ),
    "max_recovery_ping_interval": NodeSetting(
        *("most seconds between recovery pings; above 0", 900, 1),
        example=300,
        parameter="lnet_max_recovery_ping_interval",
    ),
    "use_tcp_bonding": NodeSetting(
        "1: a tcp net added from now on is one NI over all interfaces named; 0: an NI each",
        most=1,
        parameter="use_tcp_bonding",
        own=True,
        restored=True,
    ),
    "degraded_below": NodeSetting(
        *(
            "percent of its usual rate below which an NI is degraded, 0 to 90; 0 does not judge",
            25,
            0,
            90,
            40,
        ),
        own=True,
    ),
    "selftest": NodeSetting(
        "take part in tests of `lst` and other consoles: 1, or 0 to refuse them",
        most=1,
        own=True,
        added=True,
        restored=True,
    ),
}
READ_ONLY: Final = frozenset(name for name, one in SETTINGS.items() if one.read_only)

ROUTER: Final = {
    "alive_router_check_interval": RouterSetting(
        "seconds between checks of a gateway on a net (60); 0: only before use", 30
    ),
    "router_ping_timeout": RouterSetting(
        "seconds for a gateway to answer, and more until a net without pings is down (50)", 30
    ),
    "check_routers_before_use": RouterSetting(
        "take gateways for down until they were checked: 1, or 0 not to"
    ),
    "avoid_asym_router_failure": RouterSetting(
        "use no gateway that lost the net behind it: 1, or 0 not to look"
    ),
    "peer_buffer_credits": RouterSetting(
        "messages of one peer that may pass through at once; 0: its peer_credits", 16, "router_peer_credits"
    ),
}

BUFFERS: Final = {  # by size
    "tiny": RouterSetting(
        "how many messages without payload may pass through at once; 0: 2048", 1024, "tiny_buffers"
    ),
    "small": RouterSetting("how many messages of up to 4096 bytes; 0: 16384", 8192, "small_buffers"),
    "large": RouterSetting("how many messages of up to 1 MiB; 0: 1024", 512, "large_buffers"),
}

"""LNet in user space: `ulnet.Node` for programs, `lnetd` and `lnetctl` for administrators.

What programs need for messages is here; requests and replies are in `ulnet.rpc`, programs without asyncio
take `ulnet.sync`, and those that configure a node `ulnet.dlc`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ulnet.core.event import Event, EventKind
    from ulnet.core.md import MdOption
    from ulnet.core.ni import NI
    from ulnet.core.status import (
        HealthStatus,
        LNetConnectionError,
        LNetError,
        LNetPermissionError,
        LNetSystemError,
        LNetTimeoutError,
    )
    from ulnet.core.tunables import NetTunables
    from ulnet.lnd.loop import new_event_loop
    from ulnet.lnd.tcp import TcpParams
    from ulnet.nid import ANY_NID, Nid
    from ulnet.node import Attachment, Inbox, Message, Node, PingResult, RailStatistics

__all__ = [
    "ANY_NID",
    "NI",
    "Attachment",
    "Event",
    "EventKind",
    "HealthStatus",
    "Inbox",
    "LNetConnectionError",
    "LNetError",
    "LNetPermissionError",
    "LNetSystemError",
    "LNetTimeoutError",
    "MdOption",
    "Message",
    "NetTunables",
    "Nid",
    "Node",
    "PingResult",
    "RailStatistics",
    "TcpParams",
    "__version__",
    "new_event_loop",
]

__version__ = "0.1.0"

_HOMES = {
    "ulnet.core.event": ("Event", "EventKind"),
    "ulnet.core.md": ("MdOption",),
    "ulnet.core.ni": ("NI",),
    "ulnet.core.status": (
        "HealthStatus",
        "LNetConnectionError",
        "LNetError",
        "LNetPermissionError",
        "LNetSystemError",
        "LNetTimeoutError",
    ),
    "ulnet.core.tunables": ("NetTunables",),
    "ulnet.lnd.loop": ("new_event_loop",),
    "ulnet.lnd.tcp": ("TcpParams",),
    "ulnet.nid": ("ANY_NID", "Nid"),
    "ulnet.node": ("Attachment", "Inbox", "Message", "Node", "PingResult", "RailStatistics"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    # Loaded on first use: lnetctl is called in loops and needs no node.
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'ulnet' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(home), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""What each service tells of itself: its methods, what is counted of them, what they take and give."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from ulnet.rpc.schema import described

if TYPE_CHECKING:
    from ulnet.rpc.call import Call
    from ulnet.rpc.server import Server
    from ulnet.rpc.service import Service

__all__ = ["METHODS", "TYPES", "methods_told", "types_told"]

# Methods that every service has.
METHODS: Final = "ulnet.methods"
TYPES: Final = "ulnet.types"


async def methods_told(server: Server, call: Call) -> dict[str, Any]:
    """The service's methods, what is counted of them, and of the server."""
    methods = [
        {"name": method.name, "kind": method.kind, **server.count_of(method.name).told()}
        for method in server.service.methods.values()
    ]
    counted = {
        **asdict(server.counters),
        "running": server.running,
        "waiting": server.waiting,
        "sessions": server.sessions,
        "kept_bytes": server.kept_bytes,
    }
    return {
        "service": server.service.name,
        "incarnation": server.incarnation,
        "server": counted,
        "methods": methods,
    }


async def types_told(service: Service, call: Call) -> dict[str, Any]:
    """What the service's methods take and give."""
    return {"service": service.name, **described(list(service.methods.values()))}

"""What each service tells of itself: its methods, what is counted of them, what they take and give."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from ulnet.rpc.schema import described
from ulnet.rpc.service import encoded

if TYPE_CHECKING:
    from ulnet.rpc.call import Call
    from ulnet.rpc.server import Server
    from ulnet.rpc.service import Data, Method, Service

__all__ = ["METHODS", "TYPES", "TypesTold", "methods_told"]

# Methods that every service has.
METHODS: Final = "ulnet.methods"
TYPES: Final = "ulnet.types"


async def methods_told(server: Server, call: Call) -> dict[str, Any]:
    """The service's methods, what is counted of them, and of the server."""
    methods = [
        {"name": method.name, "kind": method.kind, **server.count_of(method.name).told()}
        for method in list(server.service.methods.values())  # other threads may add some
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


class TypesTold:
    """Tells what the service's methods take and give. To find that out takes long, so it is kept."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._methods: list[Method] = []
        self._told: Data = b""

    async def __call__(self, call: Call) -> Data:
        """The answer; it is made anew where the methods have changed."""
        methods = list(self._service.methods.values())
        if methods != self._methods or not self._told:
            self._told = encoded({"service": self._service.name, **described(methods)})
            self._methods = methods
        return self._told

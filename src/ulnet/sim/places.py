"""Ports by what people call them: a name, a NID, or a whole node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from ulnet.nid import Nid
from ulnet.sim.cables import Fabric, Port
from ulnet.sim.errors import PlanError
from ulnet.sim.foreign import ForeignNode
from ulnet.sim.node import SimNode

__all__ = ["Place", "find_port", "find_ports"]

Place: TypeAlias = str | Nid | SimNode | ForeignNode | Port


def find_port(fabric: Fabric, where: str | Nid | Port) -> Port:
    """A port by name (`a.eth0`) or NID. Raises PlanError."""
    if isinstance(where, Port):
        return where
    for host in fabric.hosts.values():
        for port in host.ports.values():
            if where == str(port):
                return port
    try:
        nid = where if isinstance(where, Nid) else Nid.parse(where)
    except ValueError:
        nid = None
    for host in fabric.hosts.values():
        found = host.port_of(nid) if nid is not None else None
        if found is not None:
            return found
    raise PlanError(f"{where} is no port: name one as NODE.INTERFACE, such as a.eth0, or by NID")


def find_ports(fabric: Fabric, what: Iterable[Place]) -> list[Port]:
    """Ports by name, NID, or all of a node (itself or its name). Raises PlanError."""
    found: list[Port] = []
    for one in what:
        if isinstance(one, SimNode | ForeignNode):
            found += one.host.ports.values()
        elif isinstance(one, str) and one in fabric.hosts:
            found += fabric.hosts[one].ports.values()
        else:
            found.append(find_port(fabric, one))
    return found

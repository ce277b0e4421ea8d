"""A node whose time-outs never come, told by lines of JSON what to do: see `main`.

What ends in a test ends because the node found out, and for no other reason.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from ulnet import Node
from ulnet.bond import BondLnd
from ulnet.core.event import Event, EventKind
from ulnet.core.md import MANAGE_REMOTE, OP_PUT
from ulnet.core.status import LNetError
from ulnet.core.tunables import LndTunables
from ulnet.nid import Nid

PORTAL = 30
NEVER = 3600  # seconds


class Patient:
    """One node, what it has begun, and what it heard."""

    def __init__(self, node: Node, nids: list[str]) -> None:
        self.node = node
        self.heard: dict[str, int] = {}  # how many PUTs came to each NID
        self._begun: list[asyncio.Task[list[str]]] = []
        node.core.settings.transaction_timeout = NEVER
        node.core.settings_changed()
        for word in nids:
            nid, _, interface = word.partition("/")
            node.add_ni(nid, interface=interface or None, lnd_tunables=LndTunables(timeout=NEVER))
        node.attach(PORTAL, 1, bytearray(1 << 20), options=OP_PUT | MANAGE_REMOTE, handler=self._on_put)

    def bond(self) -> str:
        """Bond all NIs, in standby; the NID of the bonding NI."""
        return str(self.node.add_bond("bond0", ["*@tcp", "*@tcp1"], keepalive=0.5).nid)

    def carrying(self) -> list[str]:
        """The NIDs of peers' slaves to which a path works."""
        (bond,) = self.node.driver(BondLnd).bonds.values()
        off = bond.slaves.off
        return [str(path.nid) for peer in bond.peers.values() for path in peer.working(off)]

    def switch(self, index: int, on: bool) -> str:
        """Take a slave out of use, or into it."""
        (bond,) = self.node.driver(BondLnd).bonds.values()
        bond.switch(index, on)
        return "switched"

    def _on_put(self, event: Event) -> None:
        if event.kind is EventKind.PUT:
            assert event.hdr is not None
            nid = str(event.hdr.dest_nid)
            self.heard[nid] = self.heard.get(nid, 0) + 1

    async def _put(self, target: str, size: int) -> list[str]:
        try:
            await self.node.put(target, PORTAL, 1, bytes(size))
        except LNetError as failed:
            return [target, failed.text]
        return [target, "done"]

    async def _ping(self, target: str, size: int) -> list[str]:
        try:
            await self.node.ping(target, timeout=NEVER)
        except LNetError as failed:
            return [target, failed.text]
        return [target, "done"]

    def begin(self, target: str, puts: int, size: int, pings: int) -> str:
        """Send so many PUTs and pings; nobody waits for them here."""
        for make in [self._put] * puts + [self._ping] * pings:
            self._begun.append(asyncio.ensure_future(make(target, size)))
        return "begun"

    def ended(self) -> list[list[str]]:
        """Where to each operation went that is over, and how it ended: "done", or the reason."""
        over = [task for task in self._begun if task.done()]
        self._begun = [task for task in self._begun if not task.done()]
        return [task.result() for task in over]

    def peer(self, nid: str) -> dict[str, Any] | None:
        """The health of each NI of a peer, and how many messages were sent there; its primary NID first."""
        found = self.node.core.peers.find(Nid.parse(nid))
        if found is None:
            return None
        return {str(member): [pni.health, sum(pni.stats.sent)] for member, pni in found.members.items()}

    async def close(self) -> None:
        """Wait for nothing any more."""
        for task in self._begun:
            task.cancel()
        await asyncio.gather(*self._begun, return_exceptions=True)


async def main(*nids: str) -> None:
    """Commands: {"begin": NID, "puts": N, "size": BYTES, "pings": N}, {"ended": true}, {"peer": NID},
    {"heard": true} (how many PUTs came to each NID), {"bond": true}, {"carrying": true} (to which NIDs of
    peers' slaves a path works), {"switch": INDEX, "on": BOOL}.

    A word is NID or NID/INTERFACE.
    """
    async with Node() as node:
        patient = Patient(node, list(nids))
        print(json.dumps("ready"), flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            print(json.dumps(_do(patient, json.loads(line))), flush=True)
        await patient.close()


def _do(patient: Patient, command: dict[str, Any]) -> Any:
    if "begin" in command:
        return patient.begin(
            command["begin"], command["puts"], command.get("size", 5), command.get("pings", 0)
        )
    if "bond" in command:
        return patient.bond()
    if "carrying" in command:
        return patient.carrying()
    if "switch" in command:
        return patient.switch(command["switch"], command["on"])
    if "ended" in command:
        return patient.ended()
    if "peer" in command:
        return patient.peer(command["peer"])
    return patient.heard


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

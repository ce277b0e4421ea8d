"""Simulated nodes with bonding NIs, and a scripted bonding NI that says what a test wants."""

from __future__ import annotations

from ulnet.bond import BondLnd
from ulnet.bond.bondni import BondNi
from ulnet.nid import LNET_PID, Net, NetType, Nid
from ulnet.sim import Simulation
from ulnet.sim.foreign import ForeignNode, Heard
from ulnet.sim.node import SimNode
from ulnet.wire.bond import (
    MATCH_BITS,
    Beacon,
    BondHello,
    Configuration,
    Kind,
    Mode,
    SlaveEntry,
    kind_of,
)
from ulnet.wire.lnet import NO_WMD, Header, MsgType

__all__ = ["BOND", "ScriptedBond", "bond_of", "bond_yaml", "bonded"]

BOND = Net.of(NetType.BOND)


def bond_yaml(*slaves: str, **options: object) -> str:
    """A bonding NI as lnetctl YAML."""
    lines = ["net:\n    - net type: bond0\n      local NI(s):\n        - slaves:"]
    lines += [f"              {index}: '{slave}'" for index, slave in enumerate(slaves)]
    if options:
        lines.append("          bond:")
    for name, value in options.items():
        if name == "bds":
            assert isinstance(value, (list, tuple))
            lines.append("              bds:")
            lines += [f"                  {index}: '{nid}'" for index, nid in enumerate(value)]
        else:
            lines.append(f"              {name}: {value}")
    return "\n".join(lines) + "\n"


def bonded(sim: Simulation, name: str, *nids: str, **options: object) -> SimNode:
    """A node with these NIs, all of them slaves of a bonding NI on bond0 in that order."""
    return sim.node(name, *nids, config=bond_yaml(*nids, **options))


def bond_of(node: SimNode) -> BondNi:
    """Its bonding NI."""
    (bond,) = node.node.driver(BondLnd).bonds.values()
    return bond


class ScriptedBond:
    """A bonding NI over one slave that answers beacons, and says HELLO when told."""

    def __init__(self, sim: Simulation, name: str, nid: str, incarnation: int = 1000) -> None:
        self.incarnation = incarnation
        self.node = sim.foreign(name, nid, on_message=self._take)
        self.nid = self.node.nid
        self.bond = Nid.of(BOND, self.nid.address)
        self.hellos: list[BondHello] = []
        self.data: list[Heard] = []
        self.answers_beacons = True

    def _take(self, heard: Heard) -> None:
        hdr = heard.hdr
        kind = kind_of(hdr)
        if kind is Kind.BEACON and self.answers_beacons:
            payload = Beacon(1, ((BOND, self.incarnation),)).pack()
            self._answer(heard, MsgType.REPLY, payload)
        elif kind is Kind.HELLO:
            self.hellos.append(BondHello.unpack(heard.payload))
        if kind is not None and hdr.wmd != NO_WMD and hdr.type == MsgType.PUT:
            self._answer(heard, MsgType.ACK)
        if hdr.dest_nid == self.bond:
            self.data.append(heard)

    def _answer(self, heard: Heard, kind: MsgType, payload: bytes = b"") -> None:
        hdr = heard.hdr
        reply = Header(
            int(kind), hdr.src_nid, heard.at, LNET_PID, LNET_PID, len(payload), hdr.wmd, hdr.match_bits
        )
        self.node.send(heard.at, heard.source, reply, payload)

    def configuration(self, mode: Mode = Mode.STANDBY) -> Configuration:
        """What it says of itself."""
        return Configuration(self.bond, (SlaveEntry(self.nid),), mode)

    def say(self, to: Nid, kind: Kind, payload: bytes) -> None:
        """Send a control message to a slave."""
        hdr = Header(
            int(MsgType.PUT),
            to,
            self.nid,
            LNET_PID,
            LNET_PID,
            len(payload),
            match_bits=MATCH_BITS | kind,
        )
        self.node.send(self.nid, to, hdr, payload)

    def hello(self, to: Nid, target: int, configuration: Configuration | None = None) -> None:
        """Say HELLO; each time with a newer incarnation."""
        self.incarnation += 1
        told = BondHello(self.incarnation, target, configuration or self.configuration(), (3,))
        self.say(to, Kind.HELLO, told.pack("big"))  # its byte order is another one


def foreign_put(node: ForeignNode, to: Nid, dest: Nid, src: Nid, portal: int, number: int) -> None:
    """A PUT whose header names other NIDs than those it travels between."""
    hdr = Header(int(MsgType.PUT), dest, src, LNET_PID, LNET_PID, hdr_data=number, portal=portal)
    node.send(node.nid, to, hdr)

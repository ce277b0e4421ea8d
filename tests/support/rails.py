"""A node with rails to a peer on the in-memory wire, whose messages end as the test says."""

from __future__ import annotations

import errno

from support.fabric import Fabric, Recorder
from ulnet.control.instance import LNet
from ulnet.core.md import Md, MdOption
from ulnet.core.msg import Msg
from ulnet.core.ni import NI
from ulnet.core.peer import PeerNi
from ulnet.core.status import HealthStatus
from ulnet.nid import Nid
from ulnet.wire.lnet import PING_PORTAL

A0, A1 = Nid.parse("10.0.0.1@tcp"), Nid.parse("10.1.0.1@tcp1")
B0, B1 = Nid.parse("10.0.0.2@tcp"), Nid.parse("10.1.0.2@tcp1")


class Rails:
    """`a` sends to the Multi-Rail peer `b`, over two rails unless told otherwise; discovery is off."""

    def __init__(
        self,
        own: tuple[Nid, ...] = (A0, A1),
        others: tuple[Nid, ...] = (B0, B1),
        *,
        multi_rail: bool = True,
        **settings: int,
    ) -> None:
        self.fabric = Fabric()
        self.a = self.fabric.node(*map(str, own))
        self.b = self.fabric.node(*map(str, others))
        for core in (self.a, self.b):
            core.set_discovery(0)
            self.serve(core, bytearray(64))
        for name, value in settings.items():
            setattr(self.a.settings, name, value)
        self.a.peers.add(others[0], others[1:], multi_rail)
        self.b.peers.add(own[0], own[1:])
        self.events = Recorder()

    @staticmethod
    def serve(core: LNet, buffer: bytearray, portal: int = 5) -> Md:
        """Memory at the end of PUTs and GETs."""
        me = core.memory.me_attach(portal, match_bits=7)
        options = MdOption.OP_PUT | MdOption.OP_GET | MdOption.MANAGE_REMOTE | MdOption.TRUNCATE
        return core.memory.md_attach(me, buffer, None, options=int(options))

    @property
    def log(self) -> list[str]:
        return self.fabric.reports

    def put(
        self, target: Nid = B0, *, data: bytes = b"x", ack: bool = False, source: Nid | None = None
    ) -> None:
        md = self.a.memory.md_bind(data, self.events, threshold=2 if ack else 1)
        self.a.put(md, target, 5, 7, ack=ack, source=source)

    def ticks(self) -> None:
        """What was put off is done; the wire stands still."""
        for _ in range(10):
            for core in self.fabric.cores:
                core.tick(self.fabric.clock.now)

    def on_wire(self, *, pings: bool | None = None) -> list[tuple[NI, Msg]]:
        """What drivers hold now, recovery pings apart."""
        self.ticks()
        return [
            (ni, msg)
            for ni, msg in self.fabric.wire
            if pings is None or (msg.hdr.portal == PING_PORTAL and msg.hdr.type == 2) == pings
        ]

    def end(
        self, status: HealthStatus, *, number: int = errno.EIO, unsent: bool = False, to: Nid | None = None
    ) -> tuple[NI, PeerNi]:
        """The driver ends its first message (to that NID) like that, pings apart; the pair that it had."""
        ni, msg = next(one for one in self.on_wire(pings=False) if to in (None, one[1].next_nid))
        self.fabric.wire.remove((ni, msg))
        pni = msg.peer_ni
        assert pni is not None
        msg.unsent = unsent
        core = self.b if self.b.nis.get(ni.nid) is ni else self.a
        core.completed([msg], status, 0 if status is HealthStatus.OK else number, "as the test says")
        self.ticks()
        return ni, pni

    def pass_time(self, seconds: float, *, answer: bool = False, step: float = 0.1) -> None:
        """Let the clock run; with `answer`, what is on the wire arrives."""
        until = self.fabric.clock.now + seconds
        while self.fabric.clock.now < until - 1e-9:
            self.fabric.clock.now = min(self.fabric.clock.now + step, until)
            if answer:
                self.fabric.run()
            else:
                self.ticks()

    def ni(self, nid: Nid) -> NI:
        return self.a.nis[nid]

    def pni(self, nid: Nid) -> PeerNi:
        found = self.a.peers.find_ni(nid)
        assert found is not None
        return found

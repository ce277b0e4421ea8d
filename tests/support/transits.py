"""Senders and messages for tests of what passes through a router."""

from __future__ import annotations

from typing import Any

from ulnet.core.msg import Transit
from ulnet.core.ni import NI, LocalNet
from ulnet.core.peer import Peer, PeerNet, PeerNi
from ulnet.core.tunables import NetTunables
from ulnet.nid import Nid
from ulnet.wire.lnet import Header, MsgType

_NO_DRIVER: Any = None
_OWN = Nid.parse("10.0.0.99@tcp")
_NI = NI(LocalNet(_OWN.net, _NO_DRIVER, NetTunables()), _OWN)


def sender(number: int, credits: int = 2) -> PeerNi:
    """A peer NI with so many router credits."""
    nid = Nid.parse(f"10.0.0.{number}@tcp")
    return PeerNi(nid, PeerNet(nid.net, Peer(nid)), credits)


def transit(pni: PeerNi, size: int = 0, dest: int = 1, cpt: int = 0) -> Transit:
    """A message of that size from it to a node of that number."""
    hdr = Header(
        type=MsgType.PUT,
        dest_nid=Nid.parse(f"10.9.0.{dest}@tcp9"),
        src_nid=pni.nid,
        dest_pid=0,
        src_pid=0,
        payload_length=size,
    )
    return Transit(_NI, pni, hdr, pni.nid, None, cpt)

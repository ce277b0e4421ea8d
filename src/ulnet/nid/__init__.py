"""NIDs, nets and the patterns that match them (spec wire-lnet.md §2)."""

from ulnet.nid.address_pattern import AddressPattern
from ulnet.nid.errors import NidError
from ulnet.nid.expr import NumberSet, split_list
from ulnet.nid.index import NidIndex, places_of
from ulnet.nid.interface import InterfacePattern
from ulnet.nid.net import ANY_NET, LO_NET, Net, NetType
from ulnet.nid.nid import ANY_NID, LO_NID, Nid
from ulnet.nid.patterns import NetPattern, NidList, NidRange
from ulnet.nid.process import LNET_PID, PID_ANY, PID_USER_FLAG, ProcessId

__all__ = [
    "ANY_NET",
    "ANY_NID",
    "LNET_PID",
    "LO_NET",
    "LO_NID",
    "PID_ANY",
    "PID_USER_FLAG",
    "AddressPattern",
    "InterfacePattern",
    "Net",
    "NetPattern",
    "NetType",
    "Nid",
    "NidError",
    "NidIndex",
    "NidList",
    "NidRange",
    "NumberSet",
    "ProcessId",
    "places_of",
    "split_list",
]

"""From a captured packet down to its TCP or UDP part: Ethernet, VLAN, Linux cooked, raw; IPv4 and IPv6."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ulnet.nid.address import format_ip

__all__ = ["TCP", "UDP", "Endpoint", "IpPayload", "ip_payload", "knows_link"]

TCP: Final = 6
UDP: Final = 17

_ETHERNET: Final = 1
_NULL: Final = (0, 108)  # BSD loopback: four bytes, then IP
_RAW: Final = (12, 14, 101, 228, 229)
_COOKED: Final = 113
_COOKED_2: Final = 276
_VLANS: Final = (0x8100, 0x88A8, 0x9100)
_IPV4: Final = 0x0800
_IPV6: Final = 0x86DD
_EXTENSIONS: Final = (0, 43, 60, 135)  # IPv6 headers whose second byte tells their length
_FRAGMENT: Final = 44
_AUTHENTICATION: Final = 51


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An IP address and port."""

    ip: bytes
    port: int

    def __str__(self) -> str:
        text = format_ip(self.ip)
        return f"[{text}]:{self.port}" if len(self.ip) == 16 else f"{text}:{self.port}"


@dataclass(frozen=True, slots=True)
class IpPayload:
    """What an IP packet carries; `cut` bytes of it were not captured."""

    src: bytes
    dst: bytes
    protocol: int
    data: bytes
    cut: int


def knows_link(link_type: int) -> bool:
    """Whether packets of that link type can be read."""
    return link_type in (_ETHERNET, _COOKED, _COOKED_2, *_NULL, *_RAW)


def ip_payload(link_type: int, data: bytes, cut: int = 0) -> IpPayload | None:
    """What the packet carries over IP; None when it is something else, damaged, or a later fragment."""
    at = _ip_start(link_type, data)
    if at is None or at >= len(data):
        return None
    version = data[at] >> 4
    if version == 4:
        return _ipv4(data, at, cut)
    return _ipv6(data, at, cut) if version == 6 else None


def _ip_start(link_type: int, data: bytes) -> int | None:
    if link_type in _RAW:
        return 0
    if link_type in _NULL:
        return 4
    if link_type == _COOKED:
        return _past_vlans(data, 14)
    if link_type == _COOKED_2:
        return 20 if int.from_bytes(data[:2], "big") in (_IPV4, _IPV6) else None
    return _past_vlans(data, 12) if link_type == _ETHERNET else None


def _past_vlans(data: bytes, type_at: int) -> int | None:
    """Where IP starts, given where the Ethernet type stands."""
    while int.from_bytes(data[type_at : type_at + 2], "big") in _VLANS:
        type_at += 4
    is_ip = int.from_bytes(data[type_at : type_at + 2], "big") in (_IPV4, _IPV6)
    return type_at + 2 if is_ip else None


def _ipv4(data: bytes, at: int, cut: int) -> IpPayload | None:
    head = (data[at] & 0x0F) * 4
    if head < 20 or len(data) < at + head:
        return None
    total = int.from_bytes(data[at + 2 : at + 4], "big")
    if total == 0:  # captured before segmentation offload filled it in
        total = len(data) + cut - at
    if int.from_bytes(data[at + 6 : at + 8], "big") & 0x3FFF or total < head:
        return None
    payload = data[at + head : at + total]
    return IpPayload(
        data[at + 12 : at + 16], data[at + 16 : at + 20], data[at + 9], payload, total - head - len(payload)
    )


def _ipv6(data: bytes, at: int, cut: int) -> IpPayload | None:
    if len(data) < at + 40:
        return None
    size = int.from_bytes(data[at + 4 : at + 6], "big")
    if size == 0:  # a jumbogram, or offload
        size = len(data) + cut - at - 40
    end = at + 40 + size
    protocol = data[at + 6]
    start = at + 40
    while protocol in _EXTENSIONS or protocol in (_FRAGMENT, _AUTHENTICATION):
        if start + 8 > len(data):
            return None
        if protocol == _FRAGMENT and int.from_bytes(data[start + 2 : start + 4], "big") & 0xFFF9:
            return None
        length = 8
        if protocol == _AUTHENTICATION:
            length = (data[start + 1] + 2) * 4
        elif protocol != _FRAGMENT:
            length = (data[start + 1] + 1) * 8
        protocol = data[start]
        start += length
    payload = data[start:end]
    return IpPayload(
        data[at + 8 : at + 24], data[at + 24 : at + 40], protocol, payload, max(end - start - len(payload), 0)
    )

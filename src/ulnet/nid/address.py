"""Addresses of the net types: text <-> bytes (spec wire-lnet.md §1, §2.3)."""

from __future__ import annotations

from ulnet.nid.errors import NidError, shown

__all__ = ["format_ip", "format_words", "parse_ipv4", "parse_ipv6", "parse_number"]


def parse_ipv4(text: str) -> bytes | None:
    """The four bytes of a dotted quad, or None when text is not one."""
    octets = text.split(".")
    if len(octets) != 4:
        return None
    address = bytearray()
    for octet in octets:
        if not (octet.isascii() and octet.isdigit() and len(octet) <= 3) or int(octet) > 255:
            return None
        address.append(int(octet))
    return bytes(address)


def parse_ipv6(text: str) -> bytes | None:
    """The sixteen bytes of an IPv6 address, or None when text is not one (a zone, `%eth0`, makes it none)."""
    import ipaddress  # late: only IPv6 pays for it

    if "%" in text:
        return None
    try:
        return ipaddress.IPv6Address(text).packed
    except ValueError:
        return None


def parse_number(text: str) -> bytes:
    """The four bytes of a numeric address (decimal or 0x…)."""
    base, digits = (16, text[2:]) if text[:2] in ("0x", "0X") else (10, text)
    try:
        if not digits.isalnum():  # int() takes signs, blanks and underscores, LNet does not
            raise ValueError
        return int(digits, base).to_bytes(4, "big")
    except (ValueError, OverflowError):
        raise NidError(
            f"address {shown(text)} is not a number from 0 to 4294967295; write it in decimal or as 0x…"
        ) from None


def format_ip(address: bytes) -> str:
    """The text that inet_ntop gives for 4 or 16 bytes."""
    if len(address) == 4:
        return f"{address[0]}.{address[1]}.{address[2]}.{address[3]}"
    if address[:10] == bytes(10) and (
        address[10:12] == b"\xff\xff" or (address[10:12] == b"\0\0" and address[12:14] != b"\0\0")
    ):
        mapped = "::ffff:" if address[10] else "::"
        return mapped + format_ip(address[12:])
    import ipaddress

    return str(ipaddress.IPv6Address(address))


def format_words(address: bytes) -> str:
    """An address of unknown kind: hexadecimal 32-bit words joined by colons."""
    return ":".join(f"{int.from_bytes(address[at : at + 4], 'big'):x}" for at in range(0, len(address), 4))

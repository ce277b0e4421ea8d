"""Links and addresses as the kernel's route messages tell them: bytes in, a table that is up to date.

The messages are read by hand: it takes a page, and no task, thread or slow import in every daemon.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["DONE", "LINKS_AND_ADDRESSES", "LinkTable", "dump_request"]

_HEADER: Final = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_LINK: Final = struct.Struct("=BxHiII")  # family, device type, index, flags, change
_ADDRESS: Final = struct.Struct("=BBBBI")  # family, prefix length, flags, scope, index
_ATTRIBUTE: Final = struct.Struct("=HH")  # length, type
_U32: Final = struct.Struct("=I")

_ERROR, DONE = 2, 3
_NEW_LINK, _DEL_LINK, _GET_LINK = 16, 17, 18
_NEW_ADDRESS, _DEL_ADDRESS, _GET_ADDRESS = 20, 21, 22
_REQUEST, _DUMP = 0x1, 0x300
LINKS_AND_ADDRESSES: Final = 0x1 | 0x10 | 0x100  # multicast groups: links, IPv4 and IPv6 addresses

_AF_UNSPEC: Final = 0  # a bridge's own messages of its ports have another family
_IFF_UP, _IFF_LOWER_UP = 0x1, 0x10000
_NAME: Final = 3
_IFA_ADDRESS, _IFA_LOCAL, _IFA_FLAGS = 1, 2, 8
_NOT_USABLE: Final = 0x40 | 0x08  # tentative, duplicate


class _LinkState(NamedTuple):
    name: str
    flags: int


class LinkTable:
    """What is up, and which addresses it has. `feed` takes whatever the kernel sends."""

    def __init__(self) -> None:
        self._links: dict[int, _LinkState] = {}
        self._addresses: dict[int, set[bytes]] = {}

    def feed(self, data: bytes | memoryview) -> int:
        """Take messages; the type of the last one (DONE: a dump is complete), 0 if there was none."""
        kind = 0
        for kind, body in _messages(memoryview(data)):
            if kind in (_NEW_LINK, _DEL_LINK):
                self._take_link(kind == _NEW_LINK, body)
            elif kind in (_NEW_ADDRESS, _DEL_ADDRESS):
                self._take_address(kind == _NEW_ADDRESS, body)
        return DONE if kind == _ERROR else kind

    def _take_link(self, there: bool, body: memoryview) -> None:
        if len(body) < _LINK.size:
            return
        family, _, index, flags, _ = _LINK.unpack_from(body)
        if family != _AF_UNSPEC:
            return
        if not there:
            self._links.pop(index, None)
            self._addresses.pop(index, None)
            return
        name = dict(_attributes(body[_LINK.size :])).get(_NAME)
        if name is not None:
            self._links[index] = _LinkState(bytes(name).rstrip(b"\0").decode("utf-8", "replace"), flags)

    def _take_address(self, there: bool, body: memoryview) -> None:
        if len(body) < _ADDRESS.size:
            return
        _, _, flags, _, index = _ADDRESS.unpack_from(body)
        found = dict(_attributes(body[_ADDRESS.size :]))
        address = found.get(_IFA_LOCAL, found.get(_IFA_ADDRESS))
        if address is None:
            return
        more = found.get(_IFA_FLAGS)
        if more is not None and len(more) == _U32.size:
            (flags,) = _U32.unpack(more)
        known = self._addresses.setdefault(index, set())
        if there and not flags & _NOT_USABLE:
            known.add(bytes(address))
        else:
            known.discard(bytes(address))

    # Questions -------------------------------------------------------------------------------------

    def index_of(self, name: str) -> int | None:
        """The number of the link of that name."""
        return next((index for index, link in self._links.items() if link.name == name), None)

    def holder_of(self, address: bytes) -> int | None:
        """The number of the link that has that address."""
        return next((index for index, known in self._addresses.items() if address in known), None)

    def has(self, index: int, address: bytes) -> bool:
        """Whether a link has that address."""
        return address in self._addresses.get(index, ())

    def name_of(self, index: int) -> str:
        """The name of a link, "" if it is gone."""
        link = self._links.get(index)
        return "" if link is None else link.name

    def why_unusable(self, index: int, address: bytes | None) -> str:
        """Why nothing can be sent over a link from that address (None: any); "" if it can."""
        link = self._links.get(index)
        if link is None:
            return "it is gone"
        if not link.flags & _IFF_UP:
            return "it is switched off"
        if not link.flags & _IFF_LOWER_UP:
            return "it has no carrier"
        if address is not None and not self.has(index, address):
            return "it has lost the address"
        return ""


def dump_request(addresses: bool) -> bytes:
    """Asks for all links, or for all addresses."""
    kind = _GET_ADDRESS if addresses else _GET_LINK
    body = bytes(_ADDRESS.size if addresses else _LINK.size)
    return _HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | _DUMP, 1, 0) + body


def _messages(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Type and body of each message."""
    while len(data) >= _HEADER.size:
        length, kind, _, _, _ = _HEADER.unpack_from(data)
        if not _HEADER.size <= length <= len(data):
            return
        yield kind, data[_HEADER.size : length]
        data = data[_aligned(length) :]


def _attributes(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        if not _ATTRIBUTE.size <= length <= len(data):
            return
        yield kind & 0x3FFF, data[_ATTRIBUTE.size : length]
        data = data[_aligned(length) :]


def _aligned(length: int) -> int:
    return (length + 3) & ~3

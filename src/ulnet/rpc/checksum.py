"""Checksums of bulk: XXH3 where both sides have the library xxhash, else CRC-32 of zlib."""

from __future__ import annotations

import asyncio
import zlib

from ulnet.wire.lnet import LNET_MTU
from ulnet.wire.rpc import KNOWS_XXH3

try:
    import xxhash
except ImportError:  # it is an extra
    _has_xxh3 = False
else:
    _has_xxh3 = True

__all__ = ["Checksum", "known"]


def known() -> int:
    """Those that this side has beside CRC-32, as CONNECT and CONNECTED tell them."""
    return KNOWS_XXH3 if _has_xxh3 else 0


class Checksum:
    """Of memory that is handed in piece by piece. `value` has 32 bits, of XXH3 the lowest."""

    __slots__ = ("_crc", "_xxh3")

    def __init__(self, xxh3: bool) -> None:
        self._crc = 0
        self._xxh3 = xxhash.xxh3_64() if xxh3 else None

    async def add(self, memory: memoryview) -> None:
        """The next bytes; others run in between."""
        for begin in range(0, memory.nbytes, LNET_MTU):
            with memory[begin : begin + LNET_MTU] as piece:
                if self._xxh3 is None:
                    self._crc = zlib.crc32(piece, self._crc)
                else:
                    self._xxh3.update(piece)
            await asyncio.sleep(0)

    @property
    def value(self) -> int:
        """That of all that was handed in."""
        return self._crc if self._xxh3 is None else self._xxh3.intdigest() & 0xFFFFFFFF

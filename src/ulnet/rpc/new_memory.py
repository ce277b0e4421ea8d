"""New memory for bulk and bodies, of as many bytes as a client says."""

from __future__ import annotations

import errno
import mmap
from contextlib import suppress
from typing import Final

from ulnet.rpc.errors import RpcError

__all__ = ["new_memory"]

_LARGE: Final = 1 << 18  # bytes; less is often memory that the process has already, which is far faster
_HUGE: Final = 1 << 22  # bytes, for which pages of the usual size would take three times as long
_OWN: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def new_memory(size: int) -> bytearray | memoryview:
    """Memory of zeros. Where it is large it is reserved, and has pages only where something is written.

    A bytearray would be filled with zeros at once, before it is known whether anything comes. Raises
    RpcError(ENOMEM).
    """
    if size < _LARGE:
        return bytearray(size)
    try:
        pages = mmap.mmap(-1, size, flags=_OWN)
    except (OSError, OverflowError):
        raise RpcError(errno.ENOMEM, f"there is no memory for {size} bytes: move it piece by piece") from None
    if size >= _HUGE:
        with suppress(OSError):  # a system that has none
            pages.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(pages)

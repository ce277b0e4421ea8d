"""The NUMA node of a piece of memory: what the system call move_pages(2) says when it is given no nodes."""

from __future__ import annotations

import ctypes
import mmap
import platform
from collections import Counter
from collections.abc import Callable

__all__ = ["memory_node_reader"]

_MOVE_PAGES = {"x86_64": 279, "aarch64": 239, "riscv64": 239, "ppc64le": 301, "s390x": 310}
_SAMPLES = 8  # pages, evenly spread


class _Buffer(ctypes.Structure):
    """Python's Py_buffer, which tells the address of read-only memory too."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("owner", ctypes.py_object),
        ("length", ctypes.c_ssize_t),
        ("item_size", ctypes.c_ssize_t),
        ("read_only", ctypes.c_int),
        ("dimensions", ctypes.c_int),
        ("rest", ctypes.c_void_p * 5),
    )


def memory_node_reader() -> Callable[[memoryview], int] | None:
    """A function that tells on which node most of a buffer is, -1 if not known; None where nobody can tell.

    Pages that were never written to are nowhere yet and do not count.
    """
    number = _MOVE_PAGES.get(platform.machine())
    if number is None or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    try:
        syscall = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError):
        return None
    syscall.restype = ctypes.c_long

    def node_of(view: memoryview) -> int:
        places = Counter(place for place in _places(syscall, number, view) if place >= 0)
        return places.most_common(1)[0][0] if places else -1

    return node_of if node_of(memoryview(b"a page that was written to")) >= 0 else None


def _places(syscall: Callable[..., int], number: int, view: memoryview) -> list[int]:
    """The nodes of some pages, negative where there is none."""
    buffer = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(buffer), 0)
    try:
        if not buffer.length:
            return []
        page = mmap.PAGESIZE
        first, last = buffer.address // page, (buffer.address + buffer.length - 1) // page
        step = max((last - first) // _SAMPLES, 1)
        pages = range(first, last + 1, step)[:_SAMPLES]
        addresses = (ctypes.c_void_p * len(pages))(*(one * page for one in pages))
        status = (ctypes.c_int * len(pages))(*[-1] * len(pages))
        if syscall(number, 0, ctypes.c_ulong(len(pages)), addresses, None, status, 0) < 0:
            return []
        return list(status)
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))

"""What servers and clients are made with, checked: an error names the setting, what it is, what it may be."""

from __future__ import annotations

import errno
import math
import operator
from numbers import Real
from typing import Final, SupportsIndex

from ulnet.core.md import MAX_TIMEOUT, Buffer
from ulnet.core.status import LNetError
from ulnet.nid import Nid
from ulnet.node import Node
from ulnet.rpc.bulk import flat
from ulnet.rpc.errors import RpcError
from ulnet.wire.lnet import LNET_MTU

__all__ = ["frame_size", "memory", "must_be_node", "must_be_target", "number", "seconds", "slots", "timeout"]

_LEAST_FRAME: Final = 512  # the head of a request with a name of 255 bytes and bulk needs 400 of them
_MOST_SLOTS: Final = 0xFFFF


def number(name: str, value: SupportsIndex, least: int, most: int | None = None) -> int:
    """A whole number in these limits. Raises TypeError, and RpcError(EINVAL)."""
    try:
        found = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}: give a whole number, not {type(value).__name__}") from None
    if found < least or (most is not None and found > most):
        limits = f"from {least} on" if most is None else f"from {least} to {most}"
        raise RpcError(errno.EINVAL, f"{name}={found}: give a number {limits}")
    return found


def slots(value: SupportsIndex) -> int:
    """The calls of a client that are under way at once."""
    return number("slots", value, 1, _MOST_SLOTS)


def frame_size(value: SupportsIndex) -> int:
    """The bytes of the largest frame."""
    return number("largest", value, _LEAST_FRAME, LNET_MTU)


def seconds(name: str, value: object) -> float:
    """A number of seconds above 0."""
    if not isinstance(value, Real):
        raise TypeError(f"{name}={value!r}: give a number of seconds, not {type(value).__name__}")
    found = _float(value)
    if not found > 0:
        raise RpcError(errno.EINVAL, f"{name}={value}: give a number of seconds above 0")
    return found


def timeout(value: object) -> float | None:
    """The time-out of a call; None: it has none, as with infinity."""
    if value is None:
        return None
    if not isinstance(value, Real):
        words = f"give a number of seconds or None, not {type(value).__name__}"
        raise TypeError(f"timeout={value!r}: {words}")
    found = _float(value)
    if found == math.inf:
        return None
    if not 0 <= found <= MAX_TIMEOUT:
        words = f"it is a number of seconds up to {MAX_TIMEOUT}, or None"
        raise RpcError(errno.EINVAL, f"timeout {found:.15g}: {words}", "no")
    return found


def _float(value: Real) -> float:
    try:
        return float(value)
    except OverflowError:  # of a number of hundreds of digits
        return -math.inf if value < 0 else math.inf


def memory(name: str, given: Buffer) -> memoryview:
    """What a call lends, as bytes. Raises RpcError(EINVAL)."""
    try:
        return flat(given)
    except LNetError as bad:
        raise RpcError(bad.errno, f"{name}=: {bad}", "no") from None


def must_be_node(node: object, example: str) -> None:
    """Raises TypeError for what is no node."""
    if not isinstance(node, Node):
        raise TypeError(f"{type(node).__name__} in place of the node: {example}")


def must_be_target(target: object, service: object, example: str) -> None:
    """Raises TypeError for what is no NID, or no name of a service."""
    if not isinstance(target, str | Nid):
        raise TypeError(f"{type(target).__name__} in place of the server's NID: {example}")
    if not isinstance(service, str):
        raise TypeError(f"{type(service).__name__} in place of the service's name: {example}")

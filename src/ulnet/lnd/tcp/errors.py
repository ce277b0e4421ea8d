"""Errors as health status and as one sentence for people (spec wire-socklnd.md §8)."""

from __future__ import annotations

import errno as e
from dataclasses import dataclass

from ulnet.core.status import HealthStatus, errno_text
from ulnet.nid import Nid

__all__ = ["Failure", "connect_status", "send_status", "why_connect_failed", "why_handshake_broke"]

# What fails here, whoever is called. All else is the peer's, or the network's: who hangs up, has another's
# certificate, or lists addresses that cannot be called must not lower the health of a local NI
# (docs/compatibility.md).
_OWN = frozenset(
    {
        *(e.ENOMEM, e.ENOBUFS, e.EMFILE, e.ENFILE, e.EADDRINUSE, e.EADDRNOTAVAIL),
        *(e.ENETDOWN, e.ENETUNREACH, e.EHOSTUNREACH, e.ENODEV, e.ENXIO, e.EBADF, e.EIO, e.ESHUTDOWN),
    }
)
_DROPPED = frozenset(
    {
        *(e.ENETDOWN, e.EHOSTUNREACH, e.ENETUNREACH, e.ECONNREFUSED, e.ECONNRESET),
        *(e.EAFNOSUPPORT, e.EINVAL, e.EACCES, e.EPERM),  # its address, its certificate, or a rule for it
    }
)
_FIRST_UNPRIVILEGED = 1024


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something ended: a positive errno, what LNet is told of it, and a sentence."""

    errno: int
    status: HealthStatus
    reason: str


def connect_status(errno: int) -> HealthStatus:
    """The health status of a failed attempt to connect."""
    if errno in _DROPPED:
        return HealthStatus.REMOTE_DROPPED
    return HealthStatus.NETWORK_TIMEOUT if errno == e.ETIMEDOUT else _status(errno)


def send_status(errno: int) -> HealthStatus:
    """The health status of messages that a broken connection could not send."""
    return HealthStatus.REMOTE_TIMEOUT if errno == e.ETIMEDOUT else _status(errno)


def _status(errno: int) -> HealthStatus:
    return HealthStatus.LOCAL_ERROR if errno in _OWN else HealthStatus.REMOTE_ERROR


def why_connect_failed(errno: int, where: str, source: str, seconds: float) -> str:
    """The sentence for a TCP connection that never came up."""
    if errno == e.ECONNREFUSED:
        return f"connection refused: nothing listens on {where}; is LNet up there, with the same accept_port?"
    if errno in (e.EHOSTUNREACH, e.ENETUNREACH):
        return f"no route to {where} from {source}: check the network between them"
    if errno == e.ENETDOWN:
        return f"the network of {source} is down: {where} cannot be reached from it"
    if errno == e.ETIMEDOUT:
        return f"timed out after {seconds:g} s: {where} does not answer"
    if errno == e.EADDRNOTAVAIL:
        return f"{source} is no address of this host any more: {where} cannot be reached from it"
    if errno == e.EADDRINUSE:
        return f"all source ports from {source} to {where} that kernel nodes trust (512 to 1023) are in use"
    return f"connecting to {where} failed: {errno_text(errno)}"


def why_handshake_broke(errno: int, where: str, nid: Nid, source_port: int, secured: bool) -> str:
    """The sentence for a peer that hung up after the connection request. It gave no reason: name all."""
    if secured:
        how = "reset" if errno == e.ECONNRESET else "closed"
        return (
            f"{where} {how} the secured connection right after our request: {nid} is not one of its NIDs, it "
            "does not accept our certificate, or its access list denies us; its log tells which"
        )
    if errno == e.ECONNRESET and source_port >= _FIRST_UNPRIVILEGED:
        return (
            f"{where} refused our unprivileged source port {source_port}: the peer accepts only ports below "
            f"{_FIRST_UNPRIVILEGED}; run as root (or with CAP_NET_BIND_SERVICE) or set accept=all there "
            f"(if it does accept all, {nid} is not one of its NIDs)"
        )
    if errno == e.ECONNRESET:
        return (
            f"{where} reset the connection during the handshake: {nid} is not one of its NIDs, "
            "or it is not an LNet node"
        )
    return (
        f"{where} closed the connection right after our request: {nid} is not one of its NIDs, "
        "it takes secured connections only, its access list denies us, or our NID is not that of the address "
        "that we call from; its log tells which"
    )

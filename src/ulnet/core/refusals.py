"""Notices of requests that found no memory, between nodes that keep a duplicate guard.

LNet drops such a request in silence, and its initiator waits for the transaction time-out. A peer that has
told its guard (docs/design/duplicate-guard.md) gets a notice in place of that: an ACK for the handle of its
PUT or GET, whose length is beyond all that a message can have and says why. Kernel nodes tell no guard, so
none of them gets one.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from ulnet.core.access import DENIED
from ulnet.core.portal import DROP, NO_MATCH, TOO_MUCH
from ulnet.wire.lnet import NO_WMD, PING_PORTAL, MsgType

if TYPE_CHECKING:
    from ulnet.core.peer import PeerNi
    from ulnet.wire.lnet import Header

__all__ = ["NO_MEMORY", "is_refusal", "of_get", "refusal", "wording"]

NO_MEMORY: Final = "nothing is attached to the portal"
_OF_PUT: Final = 0xFFFFFE00
_OF_GET: Final = 0xFFFFFF00
_CODES: Final = {NO_MATCH: 1, NO_MEMORY: 2, DROP: 3, TOO_MUCH: 4, DENIED: 5}
_WORDS: Final = {
    1: (errno.ENOENT, "no match entry takes it: see its portal and match bits"),
    2: (errno.ENOENT, "nothing is attached to its portal"),
    3: (errno.EMSGSIZE, "it does not fit the memory there: send less, or attach with TRUNCATE"),
    4: (errno.EMSGSIZE, "it is longer than a message may be"),
    5: (errno.EACCES, "its access lists do not let this NID do that"),
}
_UNKNOWN: Final = (errno.EREMOTEIO, "for a reason that this version does not know")


def refusal(sender: PeerNi, hdr: Header, why: str) -> int | None:
    """The length that tells the sender of a PUT or GET why it was dropped; None where nothing is to be told.

    A push that is denied is acknowledged, whoever sent it: discovery there has nothing to wait for.
    """
    if hdr.wmd == NO_WMD:
        return None
    if why is DENIED and hdr.portal == PING_PORTAL and hdr.type == MsgType.PUT:
        return 0
    code = _CODES.get(why, 0)
    if not (code and sender.peer.guard):
        return None
    return (_OF_GET if hdr.type == MsgType.GET else _OF_PUT) | code


def is_refusal(length: int) -> bool:
    """Whether an ACK with that length is a notice."""
    return length >= _OF_PUT


def of_get(length: int) -> bool:
    """Whether a notice is of a GET, not of a PUT."""
    return length >= _OF_GET


def wording(length: int) -> tuple[int, str]:
    """The errno (positive) of a notice, and its reason."""
    return _WORDS.get(length & 0xFF, _UNKNOWN)

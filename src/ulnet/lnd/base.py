"""What drivers share: failing a message only after `send` has returned, and news of devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ulnet.wire.lnet import NO_WMD, MsgType

if TYPE_CHECKING:
    from ulnet.core.msg import Msg
    from ulnet.core.ni import NI, Place
    from ulnet.core.status import HealthStatus
    from ulnet.lnd.contract import Upcalls

__all__ = ["DeviceNews", "DeviceWatch", "Failures", "is_bare"]

_PUT: Final = int(MsgType.PUT)


def is_bare(msg: Msg) -> bool:
    """Whether it is a PUT of this node that nobody acknowledges: a router's are their senders' business."""
    return msg.wmd is NO_WMD and msg.md is not None and msg.hdr.type == _PUT


class DeviceNews(NamedTuple):
    """What has become of an NI's device: `failure` says why it can carry nothing, "" that it can again.

    `slow` says that it carries far less than it did.
    """

    name: str
    failure: str = ""
    gone: bool = False  # for good: one that comes back under the same name is another one
    slow: str = ""


class DeviceWatch(Protocol):
    """The source of news on the host's devices, for the drivers that use them."""

    def add(self, ni: NI, tell: Callable[[DeviceNews], None], place: Place | None = None) -> None:
        """Call `tell` whenever the device of ni fails or can be used again; never from inside `add`.

        `place` is one of several devices of ni. Each is added by itself.
        """

    def remove(self, ni: NI) -> None:
        """The NI is gone."""


class Failures:
    """Messages that have failed and whose owner is told from the event loop, never from inside `send`.

    `wake` is called when the first one arrives; it has `drain` called soon.
    """

    __slots__ = ("_core", "_waiting", "_wake")

    def __init__(self, core: Upcalls, wake: Callable[[], None]) -> None:
        self._core = core
        self._wake = wake
        self._waiting: list[tuple[Msg, HealthStatus, int, str]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def msgs(self) -> list[Msg]:
        """The messages, in order."""
        return [msg for msg, *_ in self._waiting]

    def add(self, msg: Msg, status: HealthStatus, errno: int, reason: str) -> None:
        """Complete msg soon."""
        if not self._waiting:
            self._wake()
        self._waiting.append((msg, status, errno, reason))

    def drain(self) -> None:
        """Complete all that wait now; what that adds in turn waits for the next call."""
        waiting, self._waiting = self._waiting, []
        for msg, status, errno, reason in waiting:
            self._core.completed([msg], status, errno, reason)

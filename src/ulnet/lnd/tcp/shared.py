"""What all connections of one driver share: core, loop, clock, receive buffer, work for this iteration."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from ulnet.core.lines import Line
from ulnet.core.receiver import RUN
from ulnet.core.status import LNetError, errno_text
from ulnet.lnd.loop import Loop, tell_failure
from ulnet.lnd.selector import Selector
from ulnet.lnd.tcp import sockets
from ulnet.lnd.tcp.budget import Budget
from ulnet.lnd.tcp.callers import Callers
from ulnet.lnd.tcp.params import TcpParams
from ulnet.lnd.tcp.progress import ProgressTimer
from ulnet.lnd.tcp.secure import Credentials
from ulnet.lnd.tcp.shakes import Shakes
from ulnet.lnd.tcp.spin import Spin
from ulnet.lnd.tcp.turns import TURNS
from ulnet.wire.lnet import HEADER_SIZE, LARGE_HEADER_SIZE
from ulnet.wire.socklnd import FRAME_HEADER_SIZE

if TYPE_CHECKING:
    from ulnet.lnd.contract import Upcalls
    from ulnet.lnd.tcp.transmit import Transmitter
    from ulnet.nid import Nid

__all__ = ["BUFFER_SIZE", "Shared"]

_REPORTS: Final = 10  # lines to the log between two sweeps
_LIVES: Final = 65536  # remembered: peers decide how many names there are
FLUSH_EVERY: Final = RUN  # messages received: what they have made due then leaves
BUFFER_SIZE: Final = 262144  # one for all connections: headers and small messages pass through it


class Shared:
    """What the parts of one driver share; `now` is the loop's time as last looked at, good for deadlines."""

    __slots__ = (
        "_report",
        "_reported",
        "_taken",
        "budget",
        "buf",
        "callers",
        "core",
        "corked",
        "credentials",
        "dirty",
        "lives",
        "loop",
        "now",
        "params",
        "progress",
        "receiving",
        "secured",
        "selector",
        "shakes",
        "spin",
        "starved",
        "sweep_interval",
        "tails",
        "tick",
        "turns",
        "unprivileged",
        "view",
    )

    def __init__(
        self,
        core: Upcalls,
        loop: asyncio.AbstractEventLoop,
        params: TcpParams,
        report: Callable[[str], None],
    ) -> None:
        self.core: Upcalls = core
        self.credentials: Credentials | None = None  # read for the first net that wants secured connections
        self.loop: asyncio.AbstractEventLoop = loop
        self.params: TcpParams = params
        self.now: float = loop.time()
        self.selector: Selector = (
            loop.selector if isinstance(loop, Loop) else Selector(partial(tell_failure, loop))
        )
        self.progress: ProgressTimer = ProgressTimer(loop, self, core.slept)
        self.budget: Budget = Budget()
        self.callers: Callers = Callers()
        self.shakes: Shakes = Shakes(loop)  # of those that we call; who calls has no place among them
        self.sweep_interval: float = params.sweep_interval  # shorter where a time-out is short
        # Who cannot call from ports below 1024 talks with others who cannot.
        self.unprivileged: bool = not (params.reserved_ports and sockets.may_use_reserved())
        self.tick: int = 0  # counts uses of connections, to find the least recent
        self.buf: bytearray = bytearray(BUFFER_SIZE)
        self.view: memoryview = memoryview(self.buf)
        # Room for exactly the next frame's header behind a large payload, by its size.
        sizes = (HEADER_SIZE, FRAME_HEADER_SIZE + HEADER_SIZE, FRAME_HEADER_SIZE + LARGE_HEADER_SIZE)
        self.tails: dict[int, memoryview] = {size: self.view[:size] for size in sizes}
        self.turns: list[memoryview] = [self.view[:size] for size in TURNS]
        self.dirty: list[Transmitter] = []
        self.spin: Spin = Spin(params.spin)
        self.corked: bool = False  # `received` is called again at the end of a group of connections
        self.receiving: bool = False  # `received` will be called before the loop goes on
        self.lives: dict[tuple[Nid, int], int] = {}  # the incarnations that peers last had
        self.starved: set[Transmitter] = set()  # the kernel had no memory: the next sweep tries again
        self.secured: dict[Nid, None] = {}  # peers that had a secured connection: none is plain now
        self._report = report
        self._taken = 0  # messages of this read, since something was last sent
        self._reported = 0  # lines since the last sweep

    def open(self) -> None:
        """Have the loop serve connections. Raises LNetError."""
        if isinstance(self.loop, Loop):
            return
        try:
            self.selector.open()
        except OSError as error:
            number = error.errno or errno.EIO
            raise LNetError(number, f"cannot watch connections: {errno_text(number)}") from None
        self.loop.add_reader(self.selector.fileno(), self.selector.serve)

    def need_credentials(self, nid: Nid) -> None:
        """The net of that NID wants secured connections. Raises LNetError."""
        if self.credentials is None:
            directory = self.params.credentials
            if directory is None:
                how = "start lnetd with --credentials DIR, a program with TcpParams(credentials=DIR)"
                text = f"{nid}: secured connections take certificates: {how}"
                raise LNetError(errno.EINVAL, text)
            self.credentials = Credentials(directory, self.loop.time, self.report)
        if not self.credentials.own.covers(nid):
            self.credentials.look()
        own = self.credentials.own
        if not own.covers(nid):
            text = (
                f"{nid}: the certificate in {self.params.credentials} is for other NIDs{own.hint}: "
                "make one with `ulnet pki` for this NID and all others here on secured nets"
            )
            raise LNetError(errno.EACCES, text)

    def close(self) -> None:
        """There are no connections any more."""
        self.shakes.close()
        if not isinstance(self.loop, Loop):
            self.loop.remove_reader(self.selector.fileno())
            self.selector.close()

    def forked(self) -> None:
        """In a child of the process: nothing is under way here. Raises OSError."""
        self.progress.stop()
        self.shakes.close()
        self.dirty.clear()
        if not isinstance(self.loop, Loop):  # else its owner does
            self.selector.forked()

    def is_new_life(self, nid: Nid, pid: int, incarnation: int) -> bool:
        """Whether that peer had another incarnation when it was last connected."""
        before = self.lives.get((nid, pid), incarnation)
        if len(self.lives) >= _LIVES:
            self.lives.clear()
        self.lives[nid, pid] = incarnation
        return before != incarnation

    def report(self, line: str) -> None:
        """Tell the log of something odd; peers that do odd things often are told of only so often."""
        self._reported += 1
        if self._reported <= _REPORTS:
            self._report(line)

    def reports_again(self) -> None:
        """A sweep has passed."""
        if self._reported > _REPORTS:
            text = f"{self._reported - _REPORTS} more lines of the TCP driver were left out"
            self._report(Line("log.left_out", text))
        self._reported = 0

    def flush_soon(self, conn: Transmitter) -> None:
        """Have conn send soon, so that frames queued until then go together.

        That is at the end of this loop iteration, or sooner: when all that was received is worked through.
        """
        if not self.dirty and not self.receiving:
            self.loop.call_soon(self._flush_dirty)
        self.dirty.append(conn)

    def worked(self, count: int) -> None:
        """Count messages of a read that were taken.

        Now and then what they made due leaves: a peer that waits for it works at the same time as we do.
        """
        self._taken += count
        if self._taken >= FLUSH_EVERY:
            self._taken = 0
            if self.dirty:
                self._flush_dirty()

    def received(self) -> None:
        """All that came was worked through: what was queued meanwhile leaves, or at the end of a group."""
        if self.selector.in_group:
            if not self.corked:
                self.corked = True
                self.selector.uncork_later(self)
            return
        self._taken = 0
        self.receiving = False
        if self.dirty:
            self._flush_dirty()

    def uncork(self) -> None:
        """A group of connections was read."""
        self.corked = False
        self.received()

    def _flush_dirty(self) -> None:
        dirty, self.dirty = self.dirty, []
        for conn in dirty:
            conn.flush()

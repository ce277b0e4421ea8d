"""What all parts of one LNet instance share: its tables, its clock, and what is to be done soon."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ulnet.core.access import EVERYBODY, Access
from ulnet.core.cpt import LARGE_MEMORY, CptTable
from ulnet.core.drops import Drops
from ulnet.core.generation import Generation
from ulnet.core.lines import Line
from ulnet.core.ni import NI, NO_LIMIT, LocalNet
from ulnet.core.peer_table import PeerTable
from ulnet.core.stats import GlobalStats
from ulnet.core.status import LNetError
from ulnet.core.timers import Deadlines, Timers
from ulnet.core.tunables import GlobalSettings
from ulnet.nid import LNET_PID, Net, Nid

if TYPE_CHECKING:
    from ulnet.core.lnd import Master
    from ulnet.core.parts import Parts
    from ulnet.core.peer import Peer

__all__ = ["NodeState"]


def _cpt_teller(cpts: CptTable, current_cpu: Callable[[], int]) -> Callable[[], int]:
    """What tells the CPT of the calling thread."""
    if cpts.count > 1:
        return lambda: cpts.of_cpu(current_cpu())
    return lambda: 0


class NodeState:
    """The tables of one node; its parts work on them.

    `clock` gives monotonic seconds. Work that must not run inside a caller's stack (completions of
    failed sends, loopback deliveries) is deferred; `wake` tells the owner that `tick` is wanted.
    `current_cpu` tells which CPU the calling thread runs on (-1: not known).
    """

    __slots__ = (
        "_deferred",
        "_ending",
        "access",
        "alarm",
        "answers",
        "clock",
        "cookie",
        "cpts",
        "deadlines",
        "divided",
        "drops",
        "forwards",
        "generation",
        "guards",
        "local_cpt",
        "masters",
        "nets",
        "nis",
        "node_of_memory",
        "notice",
        "peers",
        "pid",
        "report",
        "running",
        "secret",
        "seq",
        "settings",
        "stats",
        "timers",
        "wake",
    )

    def __init__(
        self,
        clock: Callable[[], float],
        cookie: int,
        secret: bytes,
        wake: Callable[[], None],
        report: Callable[[str], None],
        cpts: CptTable,
        current_cpu: Callable[[], int],
        parts: Parts,
        *,
        alarm: Callable[[str], None] | None = None,
        notice: Callable[[str], None] | None = None,
        node_of_memory: Callable[[memoryview], int] | None = None,
        access: Access = EVERYBODY,
    ) -> None:
        self.clock: Callable[[], float] = clock
        self.cookie: int = cookie  # tells this life of the node from earlier ones in wire handles
        self.secret: bytes = secret or cookie.to_bytes(8, "little")
        self.wake: Callable[[], None] = wake
        self.report: Callable[[str], None] = report
        # of what is more than a warning: NIs that fail, messages that switch paths
        self.alarm: Callable[[str], None] = alarm or report
        self.notice: Callable[[str], None] = notice or report  # of less than one: NIs that are good again
        self.access: Access = access  # who may do what here
        self.pid: int = LNET_PID
        self.cpts: CptTable = cpts
        self.local_cpt: Callable[[], int] = _cpt_teller(cpts, current_cpu)  # of the calling thread
        self.divided: bool = cpts.count > 1  # else all memory is near CPT 0
        self.node_of_memory: Callable[[memoryview], int] | None = node_of_memory  # where somebody can tell
        self.settings: GlobalSettings = GlobalSettings()
        self.stats: GlobalStats = GlobalStats()
        self.drops: Drops = Drops(self)
        self.nets: dict[Net, LocalNet] = {}
        self.nis: dict[Nid, NI] = {}
        self.masters: dict[Nid, Master] = {}  # NIs that are made of others
        self.peers: PeerTable = PeerTable(self._peer_credits, self.nis.__contains__, parts)
        self.timers: Timers = Timers(wake, self.call_failed, parts)
        self.deadlines: Deadlines = self.timers.wheel
        self.guards: bool = True  # peers are told that identities of PUTs are kept
        self.forwards: bool = False  # this node is a router: set by that alone
        self.running: bool = True
        self.generation: Generation = (
            Generation()
        )  # of our NIs, their health, policies: choices are void behind it
        self.seq: int = 0  # counts sends: who has the lowest number was used longest ago
        self.answers: int = 0  # ACKs and REPLYs that hold credits or wait for them
        self._deferred: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._ending: BaseException | None = None  # what a program's call raised to end the program

    def _peer_credits(self, net: Net) -> int:
        local = self.nets.get(net)
        return 0 if local is None else local.tunables.peer_credits or NO_LIMIT

    def ways_changed(self, peer: Peer, why: str) -> None:
        """What was decided of the paths to that peer is void; that of thousands of others holds."""
        peer.generation.invalidate(why)
        if self.masters:  # what they keep of their slaves goes by the node's generation
            self.generation.invalidate(why)

    def cpt_of(self, fragments: Sequence[memoryview]) -> int:
        """The CPT of large memory, as far as it is known, else that of the calling thread."""
        cpt = self.local_cpt()
        node_of = self.node_of_memory
        if node_of is None or not fragments or fragments[0].nbytes < LARGE_MEMORY:
            return cpt
        return self.cpts.with_node(node_of(fragments[0]), cpt)

    def must_run(self) -> None:
        """Raises LNetError(ESHUTDOWN) once the node shuts down."""
        if not self.running:
            raise LNetError(errno.ESHUTDOWN, "the node is shutting down: it takes nothing new")

    def source_ni(self, source: Nid, *, even_if_leaving: bool) -> NI:
        """The NI that a request is bound to. Raises LNetError: EINVAL (none), ENETDOWN (it is leaving)."""
        ni = self.nis.get(source)
        if ni is None or not ni.active:
            raise LNetError(
                errno.EINVAL, f"source NID {source} is not one of this node's: see 'lnetctl net show'"
            )
        if not (ni.open or even_if_leaving):
            text = f"source NID {source} is drained, or being deleted: leave the source out"
            raise LNetError(errno.ENETDOWN, text)
        return ni

    def defer(self, call: Callable[..., None], *args: Any) -> None:
        """Call call(*args) from the next tick."""
        if not self._deferred:
            self.wake()
        self._deferred.append((call, args))

    def run_deferred(self) -> None:
        """Do what was deferred before this call; what that defers in turn waits for the next tick."""
        deferred = self._deferred
        count = len(deferred)
        while count and deferred:  # a call may come back to this very method
            count -= 1
            call, args = deferred.popleft()
            try:
                call(*args)
            except BaseException as error:  # what else is deferred or due has nothing to do with it
                self.call_failed(error)
        if deferred:
            self.wake()

    def mistake(self, error: BaseException, what: str, about: object | None = None, where: str = "") -> None:
        """A program's call raised: a line for the log, also where that is no Exception (CancelledError).

        `what` failed, and with what (`about`), if that is to be shown. What is to end the program is kept
        until nothing is under way: `let_end` raises it.
        """
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            self._end_by(error)
            return
        named = what if about is None else f"{what} {self._shown(about)}"
        self.report(Line("program.failed", f"{named}: {self._shown(error)}{where}", what=what))

    def _shown(self, thing: object) -> str:
        """Its `repr`, which may be a program's own, and raise as well."""
        try:
            return repr(thing)
        except (KeyboardInterrupt, SystemExit) as end:
            self._end_by(end)
        except BaseException:  # its type must do
            pass
        return f"<{type(thing).__name__} that cannot be shown>"

    def _end_by(self, end: BaseException) -> None:
        self._ending = end
        self.wake()

    def let_end(self) -> None:
        """Raises what a program's call has raised to end the program, once."""
        ending = self._ending
        self._ending = None
        if ending is not None:
            raise ending

    def call_failed(self, error: BaseException) -> None:
        """Something that was deferred or due raised: a mistake in this program, told with its place."""
        trace, place = error.__traceback__, ""
        while trace is not None:
            code = trace.tb_frame.f_code
            place = f"{code.co_name}, {code.co_filename}:{trace.tb_lineno}"
            trace = trace.tb_next
        self.mistake(error, "call failed", where=f" in {place}")

    @property
    def work_pending(self) -> bool:
        """Whether something is deferred."""
        return bool(self._deferred)

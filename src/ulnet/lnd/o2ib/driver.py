"""The o2ib driver: LNet's o2iblnd over the verbs of a port (spec wire-o2iblnd.md, docs/design/o2ib.md)."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ulnet.core.status import LNetError
from ulnet.lnd.o2ib.ni import NiState
from ulnet.lnd.o2ib.params import O2ibParams
from ulnet.nid import NetType, Nid

if TYPE_CHECKING:
    import asyncio

    from ulnet.core.msg import Msg
    from ulnet.core.ni import NI
    from ulnet.lnd.contract import Upcalls
    from ulnet.lnd.o2ib.verbs import Verbs

__all__ = ["O2ibLnd"]


class O2ibLnd:
    """The driver for all o2ib nets of a node; time and devices are those that it is given."""

    name = "o2ib"
    net_type: int = NetType.O2IB.value
    reports_timeout = True

    def __init__(
        self,
        core: Upcalls,
        loop: asyncio.AbstractEventLoop,
        verbs: Verbs,
        params: O2ibParams | None = None,
        *,
        realtime_ns: Callable[[], int] = time.time_ns,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._core = core
        self._loop = loop
        self._verbs = verbs
        self.params: O2ibParams = params if params is not None else O2ibParams()
        self._realtime_ns = realtime_ns
        self._report = report
        self.states: dict[Nid, NiState] = {}

    def startup(self, ni: NI) -> None:
        """Listen at the NI's address. Raises LNetError."""
        if ni.nid in self.states:
            raise LNetError(errno.EEXIST, f"{ni.nid} is up already")
        if ni.nid.is_large:
            text = f"{ni.nid}: o2ib carries NIDs of four bytes only: use an interface with an IPv4 address"
            raise LNetError(errno.EAFNOSUPPORT, text)
        incarnation = self._realtime_ns()
        state = NiState(self._core, self._loop, self._verbs, self.params, ni, incarnation, self._report)
        ni.batches = True
        ni.lnd_data = self.states[ni.nid] = state

    def shutdown(self, ni: NI) -> None:
        """Close the NI's connections and finalize its messages, at once."""
        state = self.states.pop(ni.nid, None)
        if state is not None:
            state.shut()

    def retune(self, ni: NI, timeout: float) -> None:
        """Time-outs and what new connections take follow the tunables."""
        state = self.states.get(ni.nid)
        if state is not None:
            state.retune(timeout)

    def access_changed(self, ni: NI) -> None:
        """Connections with those who are denied now end, also those that are being made."""
        state = self.states.get(ni.nid)
        if state is not None:
            state.end_denied()

    def verify(self, ni: NI, nid: Nid) -> bool:
        """The node behind nid may have begun a new life: see whether connections are with the former one."""
        state = self.states.get(ni.nid)
        return state is not None and state.verify(nid)

    def send(self, ni: NI, msgs: list[Msg]) -> None:
        """Queue messages for their next hop."""
        state = ni.lnd_data
        assert isinstance(state, NiState)
        state.send(msgs)

    def close(self) -> None:
        """Shut down all NIs."""
        for state in list(self.states.values()):
            self.shutdown(state.ni)
        self._verbs.close()

    def forked(self) -> None:
        """In a child of the process: call nobody, and do nothing when its time comes."""
        for state in self.states.values():
            state.forked()
        self._verbs.forked()

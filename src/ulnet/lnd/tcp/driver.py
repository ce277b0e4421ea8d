"""The TCP driver: LNet's socklnd in user space (spec wire-socklnd.md)."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ulnet.core.status import HealthStatus, LNetError
from ulnet.lnd.base import DeviceWatch
from ulnet.lnd.tcp.acceptor import Acceptor
from ulnet.lnd.tcp.devices import address_number, devices_of
from ulnet.lnd.tcp.errors import Failure
from ulnet.lnd.tcp.handshake import Identity
from ulnet.lnd.tcp.nistate import NiState
from ulnet.lnd.tcp.params import TcpParams, conns_for_speed
from ulnet.lnd.tcp.shared import Shared
from ulnet.nid import LNET_PID, NetType, Nid, ProcessId

if TYPE_CHECKING:
    from ulnet.core.msg import Msg
    from ulnet.core.ni import NI
    from ulnet.lnd.contract import Upcalls

__all__ = ["TcpLnd"]

_MAX_CONNS_PER_PEER: Final = 127


class TcpLnd:
    """The driver for all tcp nets of a node, on one event loop.

    A message is sent at the end of the loop iteration that queued it. All deadlines are seen to by
    one timer, which runs while there is an NI, and of what is under way by a faster one, which runs
    while there is any. `report` takes a line for the log now and then; `watch` tells of devices.
    """

    name = "tcp"
    net_type: int = NetType.TCP.value
    reports_timeout = True

    def __init__(
        self,
        core: Upcalls,
        loop: asyncio.AbstractEventLoop,
        params: TcpParams | None = None,
        *,
        pid: int = LNET_PID,
        realtime_ns: Callable[[], int] = time.time_ns,
        report: Callable[[str], None] = lambda line: None,
        watch: DeviceWatch | None = None,
    ) -> None:
        self._shared = Shared(core, loop, params if params is not None else TcpParams(), report)
        self._watch = watch
        self._states: dict[Nid, NiState] = {}
        self._acceptor = Acceptor(self._shared, self._states)
        self._pid = pid
        self._realtime_ns = realtime_ns
        self._timer: asyncio.TimerHandle | None = None

    @property
    def params(self) -> TcpParams:
        """The module parameters."""
        return self._shared.params

    # Lnd ----------------------------------------------------------------------------------------------

    def startup(self, ni: NI) -> None:
        """Listen on the NI's address. Raises LNetError."""
        if ni.nid in self._states:
            raise LNetError(errno.EEXIST, f"{ni.nid} is up already")
        conns = _conns_per_peer(ni)
        devices = devices_of(ni)
        if ni.lnd_tunables is not None and ni.lnd_tunables.security:
            self._shared.need_credentials(ni.nid)
        if not self._states:
            self._shared.open()
        try:
            for device in devices:
                self._acceptor.open(ni.nid, device)
        except BaseException:
            self._close_if_idle()
            raise
        ips = tuple(address_number(device.nid) for device in devices) if len(devices) > 1 else ()
        identity = Identity(ni.nid, self._pid, self._realtime_ns(), ips)
        self._shared.now = self._shared.loop.time()
        ni.batches = True
        state = NiState(self._shared, self._acceptor, ni, identity, devices, conns)
        ni.lnd_data = self._states[ni.nid] = state
        self._set_pace()
        if self._watch is not None:
            for device in devices:
                self._watch.add(ni, partial(state.device_changed, device), device.place)

    def shutdown(self, ni: NI) -> None:
        """Close the NI's connections and finalize its messages, at once."""
        state = self._states.pop(ni.nid, None)
        if state is None:
            return
        if self._watch is not None:
            self._watch.remove(ni)
        self._acceptor.close(ni.nid)
        self._set_pace()
        state.shut()
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if not self._states:
            self._shared.close()

    def send(self, ni: NI, msgs: list[Msg]) -> None:
        """Queue messages for their next hop."""
        state = ni.lnd_data
        assert isinstance(state, NiState)
        first = msgs[0]
        nid, pid = first.next_nid, first.next_pid
        assert nid is not None
        peer = state.peers.get((nid, pid))
        if peer is None:
            failure = self._unreachable(state, nid, pid)
            if failure is not None:
                for msg in msgs:
                    state.fail_unsent(msg, failure)
                return
            peer = state.peer(nid, pid)
        peer.launch(msgs)

    def verify(self, ni: NI, nid: Nid) -> bool:
        """The node behind nid may have begun a new life: see whether connections are with the former one."""
        state = ni.lnd_data
        assert isinstance(state, NiState)
        peer = state.peers.get((nid, self._pid))
        return peer is not None and peer.verify()

    def _unreachable(self, state: NiState, nid: Nid, pid: int) -> Failure | None:
        """Why a peer that is not connected cannot be called."""
        if not state.open:
            reason = f"the local interface {state.identity.nid} has been shut down"
            return Failure(errno.ESHUTDOWN, HealthStatus.LOCAL_ERROR, reason)
        denied = self._shared.core.why_denied(state.ni, nid)
        if denied:
            return Failure(errno.EACCES, HealthStatus.REMOTE_ERROR, denied)
        if pid != self._pid:
            # Also what bounds the calls that made-up pids in a peer's headers could cause. Nobody is charged:
            # who makes them up, or sends to them over this router, must not lower the health of others.
            name = ProcessId(nid, pid)
            reason = f"{name} is not connected, and only LNet's own pid {self._pid} can be called"
            return Failure(errno.EHOSTUNREACH, HealthStatus.OK, reason)
        return None

    def close(self) -> None:
        """Shut down all NIs."""
        for state in list(self._states.values()):
            self.shutdown(state.ni)

    def forked(self) -> None:
        """In a child of the process: call nobody, and do nothing when its time comes. Raises OSError."""
        for state in self._states.values():
            state.open = False
        if self._timer is not None:
            self._timer.cancel()
        self._acceptor.shakes.close()
        self._shared.forked()

    # Deadlines ----------------------------------------------------------------------------------------

    def retune(self, ni: NI, timeout: float) -> None:
        """The connections that are there stay; new ones, and all time-outs, follow the tunables.

        Plain connections end where they must be secured from now on. Raises LNetError.
        """
        state = self._states.get(ni.nid)
        if state is not None:
            state.set_security()
            state.conns_per_peer = _conns_per_peer(ni)
            state.set_timeout(timeout)
            self._set_pace()

    def access_changed(self, ni: NI) -> None:
        """Connections with those who are denied now end, also those that are being made."""
        state = self._states.get(ni.nid)
        if state is not None:
            state.end_denied()

    def _set_pace(self) -> None:
        """Sweep often enough for the shortest time-out; not at all without an NI."""
        shared = self._shared
        states = self._states.values()
        shortest = min((state.timeout for state in states), default=0.0)
        shared.sweep_interval = min(shared.params.sweep_interval, shortest / 8)
        for state in states:
            state.divide()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if states:
            self._timer = shared.loop.call_later(shared.sweep_interval, self._sweep)

    def _sweep(self) -> None:
        shared = self._shared
        shared.now = now = shared.loop.time()
        shared.reports_again()
        if shared.credentials is not None:
            shared.credentials.refresh()
            if shared.credentials.revised:
                shared.credentials.revised = False
                for state in list(self._states.values()):
                    state.end_revoked()
        self._timer = shared.loop.call_later(shared.sweep_interval, self._sweep)
        starved = list(shared.starved)
        shared.starved.clear()
        for conn in starved:
            conn.flush()
        for state in list(self._states.values()):
            state.sweep(now)

    # Counters -----------------------------------------------------------------------------------------

    @property
    def open_connections(self) -> int:
        """Established connections, of all NIs."""
        return sum(len(peer.conns) for state in self._states.values() for peer in state.peers.values())

    @property
    def queued_messages(self) -> int:
        """Messages that are not with the kernel yet."""
        return sum(state.queued() for state in self._states.values())

    @property
    def pending_handshakes(self) -> int:
        """Inbound and outbound connections that are not established yet."""
        dialers = (peer.dialer for state in self._states.values() for peer in state.peers.values())
        outbound = sum(1 for dialer in dialers if dialer is not None and dialer.connecting)
        return len(self._shared.callers.half_open) + outbound


def _conns_per_peer(ni: NI) -> int:
    """How many bulk connections of each type a peer gets; 0 asks for what suits the interface's speed."""
    wanted = ni.lnd_tunables.conns_per_peer if ni.lnd_tunables is not None else 0
    if not 0 <= wanted <= _MAX_CONNS_PER_PEER:
        raise LNetError(
            errno.EINVAL, f"conns_per_peer={wanted} is out of range: use 1 to {_MAX_CONNS_PER_PEER}, or 0"
        )
    if wanted:
        return wanted
    speed: int | None = None
    if ni.interface is not None:
        with suppress(OSError, ValueError):
            speed = int(Path(f"/sys/class/net/{ni.interface}/speed").read_text("ascii"))
    return conns_for_speed(speed)

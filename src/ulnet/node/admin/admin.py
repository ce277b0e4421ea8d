"""Executes requests on a Node: checks everything, then changes; errors as DlcError."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import Any

from ulnet.core.status import LNetError
from ulnet.dlc import model
from ulnet.dlc.caller import OURSELVES, Caller
from ulnet.dlc.config import Step, step_error
from ulnet.dlc.errors import DlcError, ErrorItem
from ulnet.dlc.modprobe import Parameters, is_setting
from ulnet.dlc.protocol import Answer
from ulnet.host import HostError, Link, links
from ulnet.node.admin.addition import Addition
from ulnet.node.admin.audit import Audit
from ulnet.node.admin.managed import ManagedNode
from ulnet.node.admin.state import AdminState
from ulnet.node.admin.table import REQUESTS, Row
from ulnet.node.admin.turns import Listing

__all__ = ["Admin"]


class Admin:
    """The one place where requests meet a node, whether they come from a socket, a file or a program.

    `host` lists the host's links; `startup` is what `lnet configure --all` does, in order; `parameters` are
    those of the modules: their settings are in force once LNet is configured, and those of drivers for
    all nets that say nothing else. `additions` take requests of their own.
    """

    def __init__(
        self,
        node: ManagedNode,
        *,
        host: Callable[[], Sequence[Link]] = links,
        startup: Sequence[Step] = (),
        parameters: Sequence[Parameters] = (),
        drain: float = 5.0,
        additions: Sequence[Addition] = (),
    ) -> None:
        self.node = node
        self._state = AdminState(node, host, startup, parameters, drain, additions)
        self._changing = asyncio.Lock()
        self._life = {
            model.LnetConfigure: Row(self._configure, changes=False),  # what it configures takes its turn
            model.LnetUnconfigure: Row(self._unconfigure, changes=True),
        }
        self._rows = REQUESTS | {
            kind: _added(do) for addition in additions for kind, do in addition.handlers.items()
        }

    async def handle(self, request: model.Request, caller: Caller = OURSELVES) -> Answer:
        """Execute a request of a caller. Raises DlcError when it is refused; nothing has changed then."""
        row = self._life.get(type(request)) or self._rows.get(type(request))
        try:
            if row is None:
                words = f"{request.verb} {request.entity}: no part of this node takes it; lnetd has them all"
                raise LNetError(errno.EOPNOTSUPP, words)
            if caller.role < row.role:
                words = f"user {caller.user} may only look at this lnetd: this takes root or an administrator"
                raise LNetError(errno.EACCES, words)
            if not self.node.running and type(request) not in self._life:
                raise _not_configured(request)
            async with self._changing if row.changes else nullcontext():
                return await self._do(row, request, caller)
        except (LNetError, HostError) as refused:
            raise DlcError(refused.errno, refused.text, verb=request.verb, entity=request.entity) from refused

    async def _do(self, row: Row, request: model.Request, caller: Caller) -> Answer:
        audit = None
        if row.audited and not request.looks and caller is not OURSELVES:
            audit = Audit(self._state, request, caller, self.node.running)
        try:
            outcome = row.do(self._state, request)
            if isinstance(outcome, Awaitable):
                outcome = await outcome
            if isinstance(outcome, Listing):
                alone = self._state.listing[caller.role]
                outcome = await outcome.read(alone, encoded=caller is not OURSELVES)
        except (LNetError, HostError) as refused:
            if audit is not None:
                audit.tell([refused.text], self.node.running)
            raise
        except asyncio.CancelledError:
            if audit is not None:  # what was done until then stays done
                audit.tell(["given up: whoever asked has gone, or this node ends"], self.node.running)
            raise
        answer = outcome if isinstance(outcome, Answer) else Answer(outcome)
        if audit is not None:
            audit.tell([item.descr for item in answer.errors], self.node.running)
        return answer

    async def apply(self, steps: Sequence[Step]) -> list[ErrorItem]:
        """Execute the requests of a file in order, all of them; the errors of those that were refused."""
        errors: list[ErrorItem] = []
        for step in steps:
            try:
                answer = await self.handle(step.request)
            except DlcError as refused:
                errors.append(step_error(step, refused.item))
            else:
                errors += [step_error(step, item) for item in answer.errors]
        return errors

    async def set_parameters(self) -> list[ErrorItem]:
        """Put the settings among the module parameters in force."""
        requests = [one for parameters in self._state.parameters for one in parameters.requests]
        return await self.apply([Step(request, 0) for request in requests if is_setting(request)])

    async def _configure(self, state: AdminState, request: model.LnetConfigure) -> Answer:
        async with self._changing:
            if self.node.running:
                return Answer()
            await self.node.start()
            self.begin_additions()
            state.large = request.large
        errors = await self.set_parameters()
        return Answer(errors=errors + (await self.apply(state.startup) if request.all else []))

    async def _unconfigure(self, state: AdminState, request: model.LnetUnconfigure) -> None:
        await self.end_additions()
        await self.node.close(state.drain)

    def begin_additions(self) -> None:
        """LNet is up. Raises LNetError."""
        for addition in self._state.additions:
            addition.begin()

    async def end_additions(self) -> None:
        """LNet is about to shut down."""
        for addition in self._state.additions:
            await addition.end()


def _added(do: Callable[[Any], Awaitable[Answer]]) -> Row:
    return Row(lambda _, request: do(request), changes=False)


def _not_configured(request: model.Request) -> LNetError:
    """What the real tool says: adding an NI to a node that is down has an errno of its own."""
    number = errno.ESHUTDOWN if isinstance(request, model.NetAdd) else errno.ENETDOWN
    return LNetError(number, "LNet is not configured on this node: run 'lnetctl lnet configure' first")

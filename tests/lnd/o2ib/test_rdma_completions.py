"""Completions of the port on rdma-core that fail or cannot be: what fails here is told apart."""

from __future__ import annotations

import asyncio
import ctypes as c
import errno
import os
from collections.abc import Iterator

import pytest

from lnd.o2ib.test_rdma_domains import Counting, World
from support.rdma import SHAPE
from ulnet.lnd.o2ib import abi
from ulnet.lnd.o2ib.rdma_pair import RdmaPair
from ulnet.lnd.o2ib.verbs import Send, Slot

pytestmark = pytest.mark.requirement("HEALTH-o2ib")
SENT, WRITTEN = 1 << 32, 1 << 33  # in the ids of work requests
SLOT = 4096


class Failing(World):
    """A device whose completions the test says."""

    def __init__(self, loop: asyncio.AbstractEventLoop, lib: Counting) -> None:
        super().__init__(loop, lib)
        self.loop = loop
        self.told: list[tuple[str, bool]] = []
        self.received: list[int] = []
        self.owner.broken = self._broken  # type: ignore[method-assign]
        self.owner.received = self._received  # type: ignore[method-assign]
        self.pair: RdmaPair = self.called()
        self.pair.post([Send([b"x"], "token")])
        (self.posted,) = self.pair._tokens

    def _broken(self, status: str, here: bool = False) -> None:
        self.told.append((status, here))

    def _received(self, slot: Slot) -> None:
        self.received.append(slot.size)

    def complete(self, number: int, status: int, size: int = 0) -> None:
        """The device tells of one work request."""
        left = [(number, status, 0, 0, size)]

        def poll(cq: int, most: int, at: int) -> int:
            if not left:
                return 0
            abi.WC.pack_into((c.c_char * abi.WC_SIZE).from_address(at), 0, *left.pop())
            return 1

        self.pair._poll = poll
        self.pair.completions()
        self.turn()

    def turn(self) -> None:
        """What is to be done soon is done."""
        self.loop.run_until_complete(asyncio.sleep(0))


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Failing]:
    loop, lib = asyncio.new_event_loop(), Counting()
    monkeypatch.setattr(abi, "libraries", lambda: lib)
    yield Failing(loop, lib)
    loop.close()
    for number in lib.files:
        os.close(number)


@pytest.mark.parametrize(
    ("status", "sending", "receiving"),
    [
        (1, True, False),  # a length: ours, or that of what the peer has sent
        (2, True, True),  # the queue pair
        (4, True, True),  # the keys of our memory
        (5, False, False),  # flushed: by what failed before, or by the peer's end
        (8, False, False),  # a write of the peer
        (9, False, False),
        (10, False, False),
        (11, False, False),
        (12, False, False),
        (13, False, False),
        (19, True, True),  # the device is of no use
        (99, False, False),
    ],
)
def test_work_that_failed_here_is_told_apart(
    failing: Failing, status: int, sending: bool, receiving: bool
) -> None:
    for number, here in ((SENT | failing.posted, sending), (WRITTEN, sending), (0, receiving)):
        failing.told.clear()
        failing.pair._failed = False
        failing.complete(number, status)
        assert [found for _, found in failing.told] == [here], number
        assert failing.told[0][0] in (abi.WC_STATUS.get(status), f"status {status}")


@pytest.mark.parametrize(
    "number",
    [SENT | 77, SENT, WRITTEN, WRITTEN | SENT, SHAPE.receives, SHAPE.receives + SHAPE.sends, (1 << 64) - 1],
)
def test_a_completion_of_work_that_was_not_asked_for_breaks_the_pair_here(
    failing: Failing, number: int
) -> None:
    failing.complete(number, 0)
    assert failing.told == [("the device completed work that it was not given", True)]
    assert not failing.received


def test_a_message_longer_than_its_buffer_breaks_the_pair_here(failing: Failing) -> None:
    failing.complete(0, 0, SLOT)
    assert (failing.received, failing.told) == ([SLOT], [])
    failing.complete(1, 0, SLOT + 1)
    assert failing.received == [SLOT]
    assert failing.told == [(f"the device tells of {SLOT + 1} bytes in a buffer of {SLOT}", True)]


@pytest.mark.parametrize("what", ["post", "post receive"])
def test_work_that_is_not_taken_failed_here(failing: Failing, what: str) -> None:
    failing.pair._post_send = failing.pair._post_recv = lambda *args: errno.EINVAL
    if what == "post":
        failing.pair.post([Send([b"y"], "token")])
    else:
        failing.pair.recycle(failing.pair._slots[0])
        failing.pair._repost()
    failing.turn()
    assert [(status.partition(":")[0], here) for status, here in failing.told] == [(what, True)]


@pytest.mark.parametrize(("event", "here"), [(1, True), (2, False), (3, False)])
def test_the_queue_pairs_own_failure_is_told_apart_from_what_the_peer_asked_for(
    failing: Failing, event: int, here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [abi.AsyncEvent(element=failing.pair.qp, type=event)]

    def told(context: int, found: c._Pointer[abi.AsyncEvent]) -> int:
        if not events:
            return -1
        into = found._obj  # type: ignore[attr-defined]
        into.element, into.type = events[0].element, events.pop().type
        return 0

    monkeypatch.setattr(failing.lib, "ibv_get_async_event", told, raising=False)
    failing.verbs._happened(failing.device.context_at)
    assert [found for _, found in failing.told] == [here]

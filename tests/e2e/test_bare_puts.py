"""PUTs without ACK into a network that carries nothing: none is lost without a word."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable

import pytest

from support import bare_node
from support.netns import Cluster
from support.program import Program
from ulnet.core.drops import IN_DOUBT

PATIENCE = 60.0
WARM = 40


def wait(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.05)


@pytest.mark.requirement("HEALTH-resend")
@pytest.mark.parametrize(("size", "count"), [(100, 20), (20_000, 5), (900_000, 1)])
def test_a_black_hole_takes_nothing_without_a_word(two_hosts: Cluster, size: int, count: int) -> None:
    """The kernel's buffers have grown: it takes all of it at once."""
    a, b = two_hosts
    ours, theirs = (Program(host, bare_node, host.nid()) for host in (a, b))
    ended: list[tuple[int, str]] = []

    def done(number: int) -> bool:
        ended.extend(ours.ask(ended=True))
        return len(ended) == number

    ours.ask(put=b.nid(), size=900_000, count=WARM)
    wait(lambda: done(WARM))
    assert {status for status, _ in ended} == {0}
    ended.clear()
    assert theirs.ask(taken=True) == WARM
    two_hosts.set_path(b, 0, through=False)
    ours.ask(put=b.nid(), size=size, count=count)
    wait(lambda: done(count))
    if size < 16384:  # the kernel has them, and says later that nobody else does
        assert {status for status, _ in ended} == {0}
        wait(lambda: ours.ask(drops=True) == {IN_DOUBT: count})
    else:
        assert {status for status, _ in ended} == {-errno.ETIMEDOUT}
        assert ours.ask(drops=True) == {}
    assert theirs.ask(taken=True) == WARM
    for program in (ours, theirs):
        program.kill()

"""What waits for credits ends at its own deadline, and the time-out of drivers follows the settings."""

from __future__ import annotations

import errno

import pytest

from support.fabric import Fabric, Recorder
from ulnet.core.event import EventKind
from ulnet.core.tunables import LndTunables, NetTunables
from ulnet.nid import LO_NID, Nid

B, C = Nid.parse("10.0.0.2@tcp"), Nid.parse("10.0.0.3@tcp")


def run(fabric, node, seconds):
    """Let time pass at a node; nothing moves on the wire."""
    end = fabric.clock.now + seconds
    while (due := node.next_deadline()) is not None and due <= end:
        fabric.clock.now = max(fabric.clock.now, due)
        node.tick(fabric.clock.now)
    fabric.clock.now = end
    node.tick(end)
    while node.state.work_pending:
        node.tick(end)


def ended(results):
    return [(event.kind, event.status) for event in results if event.unlinked]


@pytest.mark.parametrize(
    "tunables", [NetTunables(peer_credits=1, credits=8), NetTunables(peer_credits=1, credits=1)]
)
def test_a_put_that_waits_for_credits_ends_at_its_own_deadline(tunables):
    """The first keeps the only credit, with its driver."""
    fabric = Fabric()
    a = fabric.node("10.0.0.1@tcp", tunables=tunables)
    fabric.node(str(B))
    fabric.node(str(C))
    a.put(a.memory.md_bind(b"first", None, threshold=1), B, 5, 7, ack=False)
    waits = Recorder()
    target = B if tunables.credits > 1 else C
    a.put(a.memory.md_bind(b"own", waits, threshold=2, timeout=5), target, 5, 7)
    run(fabric, a, 4)
    assert ended(waits) == []
    run(fabric, a, 4)
    assert ended(waits) == [(EventKind.SEND, -errno.ECANCELED)]
    bare = Recorder()
    a.put(a.memory.md_bind(b"bare", bare, threshold=1), target, 5, 7, ack=False)
    run(fabric, a, 140)
    assert ended(bare) == []
    run(fabric, a, 20)
    assert ended(bare) == [(EventKind.SEND, -errno.ETIMEDOUT)]
    assert "waited too long for its turn" in bare[-1].reason
    fabric.run()
    fabric.assert_conserved()


def test_what_is_unlinked_while_it_waits_for_credits_ends_soon():
    fabric = Fabric()
    a = fabric.node("10.0.0.1@tcp", tunables=NetTunables(peer_credits=1, credits=8))
    fabric.node(str(B))
    results = [Recorder() for _ in range(3)]
    mds = [a.memory.md_bind(b"x", one, threshold=1) for one in results]
    for md in mds:
        a.put(md, B, 5, 7, ack=False)
    a.memory.md_unlink(mds[1])
    run(fabric, a, 2)
    assert [ended(one) for one in results] == [[], [(EventKind.SEND, -errno.ECANCELED)], []]
    fabric.run()
    assert ended(results[2]) == [(EventKind.SEND, 0)]
    fabric.assert_conserved()


@pytest.mark.requirement("HEALTH-timeouts")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (LndTunables(), [50, 1, 24, 50]),
        (LndTunables(timeout=0), [49, 1, 24, 199]),
        (LndTunables(timeout=20), [20, 20, 20, 20]),
    ],
)
def test_the_time_out_of_drivers_follows_the_settings_unless_it_is_set(given, expected):
    """As many attempts as retry_count allows have their time before transaction_timeout is over."""
    fabric = Fabric()
    a = fabric.node("10.0.0.1@tcp", lnd_tunables=given)
    (ni,) = (ni for nid, ni in a.nis.items() if nid != LO_NID)
    seen = [ni.timeout]
    for transaction_timeout, retry_count in ((5, 2), (50, 1), (600, 2)):
        a.settings.transaction_timeout = transaction_timeout
        a.settings.retry_count = retry_count
        a.settings_changed()
        seen.append(ni.timeout)
        assert ni.patience == ni.timeout * (retry_count + 1) + 1
    assert seen == expected

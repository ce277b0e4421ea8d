"""Planted bugs are found, cut down to a few events, and found again from what was printed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ulnet.core.completion import Completion
from ulnet.core.peer_table import PeerTable
from ulnet.core.receiver import Receiver
from ulnet.lnd.sim import SimStation
from ulnet.sim.plan import Plan
from ulnet.sim.random_run import RECIPES, find_failure, replay
from ulnet.sim.scenario import read_scenario, scenario_text

Patch = pytest.MonkeyPatch


def finalize_forgotten(patch: Patch) -> None:
    """A driver forgets the messages that a reset broke."""
    sent = SimStation.sent

    def forgetful(self: SimStation, frame: Any, failed: Any) -> None:
        if failed is None:
            sent(self, frame, failed)

    patch.setattr(SimStation, "sent", forgetful)


def finalized_twice(patch: Patch) -> None:
    """A driver finalizes failed messages twice."""
    sent = SimStation.sent

    def twice(self: SimStation, frame: Any, failed: Any) -> None:
        sent(self, frame, failed)
        if failed is not None:
            self._core.completed([frame.token], 5, 5)  # type: ignore[arg-type]

    patch.setattr(SimStation, "sent", twice)


def delivered_twice(patch: Patch) -> None:
    """The receiver takes every PUT twice."""
    puts = Receiver._take_puts

    def twice(self: Receiver, *arguments: Any) -> int:
        puts(self, *arguments)
        return puts(self, *arguments)

    patch.setattr(Receiver, "_take_puts", twice)


def wrong_table(patch: Patch) -> None:
    """A peer's NID is left out of the table."""
    attach = PeerTable._attach

    def forgetful(self: PeerTable, *arguments: Any) -> Any:
        pni = attach(self, *arguments)
        if len(pni.peer.members) > 1:
            del self._by_nid[pni.nid]
        return pni

    patch.setattr(PeerTable, "_attach", forgetful)


def answer_without_data(patch: Patch) -> None:
    """The bytes that arrive are others."""
    send = SimStation.send

    def garbled(self: SimStation, msg: Any) -> None:
        if msg.hdr.type == 1 and msg.hdr.portal and msg.hdr.payload_length:
            msg.payload = [memoryview(bytes(msg.hdr.payload_length))]
        send(self, msg)

    patch.setattr(SimStation, "send", garbled)


def crash(patch: Patch) -> None:
    """The core raises in the middle of an event."""

    def fails(self: Completion, *arguments: Any) -> None:
        raise RuntimeError("planted")

    patch.setattr(Completion, "_failed", fails)


IN_C = pytest.mark.pure  # methods that the compiled build calls without looking them up
BUGS = [
    pytest.param(finalize_forgotten, marks=IN_C),
    pytest.param(finalized_twice, marks=IN_C),
    pytest.param(delivered_twice, marks=IN_C),
    pytest.param(wrong_table, marks=IN_C),
    pytest.param(answer_without_data, marks=IN_C),
    pytest.param(crash, marks=IN_C),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found_shrunk_and_found_again(
    bug: Callable[[Patch], None], tmp_path: Path, monkeypatch: Patch
) -> None:
    with monkeypatch.context() as patch:
        bug(patch)
        found = find_failure(RECIPES["mixed"], range(50), shrink_runs=150)
        assert found is not None, "not found in 50 runs"
        seed, plan, why = found
        assert f"seed {seed}" in why or "planted" in why or "acknowledged" in why
        assert len(plan.events) <= 6
        path = tmp_path / "small.yaml"
        path.write_text(scenario_text(plan))
        kept: Plan = read_scenario(path)
        again = replay(RECIPES["mixed"], seed, plan=kept)
        assert not again.ok
    assert replay(RECIPES["mixed"], seed, plan=kept).ok, "it fails without the bug too"

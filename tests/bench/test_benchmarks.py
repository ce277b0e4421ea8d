"""The benchmark's harness: it runs what it says and reckons right. No figure is judged here."""

from __future__ import annotations

from pathlib import Path

import pytest

import hotspots
from report import cells, markdown, summarize
from run import main
from runner import COMPETITORS, Run, run_once
from work import WORKS, Meter, Work

TINY = [
    Work("bulk-stream", "bulk", "stream", 1 << 20, 8, 2),
    Work("bulk-ack", "acknowledged", "ack", 1 << 20, 20, 2, window=4),
    Work("small-stream", "small", "stream", 64, 3000, 10),
    Work("small-roundtrip", "there and back", "roundtrip", 64, 50, 5),
]
ALWAYS = [player for player in COMPETITORS if not player.needs]


@pytest.mark.parametrize("work", TINY, ids=lambda work: work.name)
@pytest.mark.parametrize("player", ALWAYS, ids=lambda player: player.name)
def test_each_competitor_moves_every_message(player: object, work: Work) -> None:
    competitor = next(one for one in ALWAYS if one is player)
    if not competitor.takes(work):
        assert work.size > 64 or work.kind != "stream"
        return
    run = run_once(competitor, work)
    assert run.wall > 0
    assert run.cpu > 0
    assert (run.p50_us > 0) == (work.kind == "roundtrip")
    assert run.p99_us >= run.p50_us


def test_bulk_work_is_large_enough_to_trust() -> None:
    assert all(work.bytes >= 2 << 30 for work in WORKS if work.size == 1 << 20)


def test_medians_and_ratios() -> None:
    work = Work("w", "Bulk", "stream", 1 << 20, 1024, 0)  # 1 GiB
    rows = summarize(
        work,
        {
            "sockets": [Run(0.5, 0.2, 0, 0), Run(0.25, 0.2, 0, 0), Run(0.1, 0.6, 0, 0)],
            "ulnet_node": [Run(0.5, 0.3, 0, 0)],
        },
    )
    heads, lines = cells(work, rows)
    assert heads[1:] == ["GiB/s", "slowest–fastest", "× sockets", "CPU s/GiB", "× sockets"]
    assert lines == [
        ["plain sockets", "4", "2–10", "1.00", "0.2", "1.00"],
        ["ulnet, event handlers", "2", "2–2", "0.50", "0.3", "1.50"],
    ]
    page = markdown([(work, rows)], {"CPU": "two of them"}, "How.")
    assert "| ulnet, event handlers | 2 | 2–2 | 0.50 | 0.3 | 1.50 |" in page
    assert "1,024 messages of 1 MiB a run" in page


def test_percentiles() -> None:
    measured = Meter().stop([1000 * n for n in range(100, 0, -1)])
    assert (measured.p50_us, measured.p99_us) == (51, 100)


def test_an_unknown_name_gets_the_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["run.py", "--only", "nanomsg"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "nanomsg: not measured here; choose from sockets" in capsys.readouterr().err


def test_a_run_that_fails_says_why() -> None:
    broken = Work("w", "w", "stream", -1, 1, 0)
    with pytest.raises(RuntimeError, match="negative"):
        run_once(COMPETITORS[0], broken)


def test_the_profile_names_our_functions() -> None:
    work = Work("small-stream", "small", "stream", 64, 3000, 10)
    found = hotspots.hotspots(work)
    for side in ("sender", "receiver"):
        ours = [spot for spot in found[side] if spot.function.startswith("ulnet/core/")]
        assert ours
        assert all(spot.own_us > 0 for spot in ours)
    assert "| `ulnet/core/" in hotspots.markdown(work, found)


def test_a_profile_from_a_checkout_called_ulnet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hotspots, "PACKAGE", Path("/home/me/ulnet/src/ulnet"))
    name = hotspots._name
    assert name("/home/me/ulnet/src/ulnet/core/msg.py", 1, "send") == "ulnet/core/msg.py:send"
    assert name("/home/me/ulnet/.venv/lib/asyncio/events.py", 1, "_run") == "asyncio/events.py:_run"
    assert name("~", 0, "<built-in method builtins.len>") == "built-in method builtins.len"

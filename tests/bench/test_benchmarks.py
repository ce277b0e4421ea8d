"""The benchmark's harness: it runs what it says and reckons right. No figure is judged here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

import hotspots
import run
from players import COMPETITORS, Competitor
from report import cells, markdown, summarize
from run import main, measure
from runner import Run, run_once
from work import LONGEST, Kind, Meter, Work

TINY = [
    Work("bulk-stream", "bulk", "stream", 1 << 20, 8, 2),
    Work("bulk-ack", "acknowledged", "ack", 1 << 20, 20, 2, window=4),
    Work("bulk-get", "fetched", "get", 1 << 20, 20, 2, window=4),
    Work("16k-stream", "middling", "stream", 1 << 14, 300, 10),
    Work("small-ack", "small and acknowledged", "ack", 64, 600, 10, window=32),
    Work("small-stream", "small", "stream", 64, 3000, 10),
    Work("small-roundtrip", "there and back", "roundtrip", 64, 50, 5),
]
HERE = [player for player in COMPETITORS if not player.missing()]
FEW = {"bulk-get", "small-stream", "small-ack", "small-roundtrip"}  # a work of each kind
PAIRS = [
    (player, work)
    for player in HERE
    for work in TINY
    if player.takes(work) and (work.name in FEW or player.name in ("c", "sockets", "ulnet_node"))
]


@pytest.mark.parametrize(("player", "work"), PAIRS, ids=lambda one: one.name)
def test_each_competitor_moves_every_message(player: Competitor, work: Work) -> None:
    done = run_once(player, work)
    assert done.wall > 0
    assert done.cpu > 0
    assert (done.p50_us > 0) == (work.kind == "roundtrip")
    assert done.p99_us >= done.p50_us


def test_a_run_is_as_long_as_its_probe_tells() -> None:
    work = Work("w", "w", "ack", 64, 1000, 10)
    assert work.lasting(1.0, wall=0.25, count=500).count == 2000
    assert work.lasting(1.0, wall=4.0, count=500).count == 500  # never fewer than were tried
    assert work.lasting(1.0, wall=0.0001, count=1000).count == LONGEST * 1000


def test_after_a_probe_each_round_runs_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    player = next(player for player in COMPETITORS if player.name == "sockets")
    work = Work("w", "w", "stream", 1 << 20, 10, 0)
    asked: list[int] = []

    def pretend(player: Competitor, work: Work) -> Run:
        asked.append(work.count)
        return Run(work.count, work.count * 0.01, 0.1, 0, 0)  # 100 messages a second

    monkeypatch.setattr(run, "run_once", pretend)
    runs = measure([work], [player], 2, Console(quiet=True))
    assert asked == [10, 100, 100]
    assert [one.count for one in runs["w"]["sockets"]] == [100, 100]
    assert [one.count for one in measure([work], [player], 1, Console(quiet=True))["w"]["sockets"]] == [10]


def test_medians_and_ratios() -> None:
    work = Work("w", "Bulk", "stream", 1 << 20, 1024, 0)  # 1 GiB
    rows = summarize(
        work,
        {
            "sockets": [Run(1024, 0.5, 0.2, 0, 0), Run(1024, 0.25, 0.2, 0, 0), Run(1024, 0.1, 0.6, 0, 0)],
            "ulnet_node": [Run(1024, 0.5, 0.3, 0, 0)],
            "ulnet_awaited": [Run(512, 0.5, 0.2, 0, 0)],  # half as many messages
            "c": [Run(1024, 0.125, 0.1, 0, 0)],
        },
    )
    heads, lines = cells(work, rows)
    ratios = ["× C", "× sockets"]
    assert heads[1:] == ["GiB/s", "slowest–fastest", *ratios, "CPU s/GiB", *ratios]
    assert lines == [
        ["C program", "8", "8–8", "1.00", "2.00", "0.1", "1.00", "0.50"],
        ["plain sockets", "4", "2–10", "0.50", "1.00", "0.2", "2.00", "1.00"],
        ["ulnet, event handlers", "2", "2–2", "0.25", "0.50", "0.3", "3.00", "1.50"],
        ["ulnet, await put", "1", "1–1", "0.12", "0.25", "0.4", "4.00", "2.00"],
    ]
    assert cells(work, rows[1:])[1][1][3:5] == ["–", "0.50"]
    page = markdown([(work, rows)], {"CPU": "two of them"}, "How.")
    assert "| ulnet, event handlers | 2 | 2–2 | 0.25 | 0.50 | 0.3 | 3.00 | 1.50 |" in page
    assert "Messages of 1,024 KiB" in page


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
    assert "nanomsg: not measured here; choose from c, sockets" in capsys.readouterr().err


def test_a_run_that_fails_says_why() -> None:
    broken = replace(Work("w", "w", "stream", 16, 1, 0), kind=cast(Kind, "gossip"))
    with pytest.raises(RuntimeError, match="EOFError: the other side closed"):
        run_once(next(player for player in COMPETITORS if player.name == "sockets"), broken)


def test_the_profile_names_our_functions() -> None:
    work = Work("small-stream", "small", "stream", 64, 20_000, 10)
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

"""`lnetctl stats`: sums over nets and peers, heat, and zeroing all."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from support.daemon import Daemon


def shown(daemon: Daemon, *words: str) -> Any:
    done = daemon.lnetctl(*words)
    assert (done.code, done.err) == (0, "")
    return yaml.safe_load(done.out)


@pytest.mark.requirement("dbg-070", "dbg-075", "dbg-085", "dbg-090", "dbg-120")
def test_sums_heat_and_reset(daemon: Daemon) -> None:
    assert daemon.lnetctl("net", "add", "--nid", "127.0.1.1@tcp,127.0.1.2@tcp").code == 0
    assert daemon.lnetctl("ping", "--timeout", "5", "127.0.1.2@tcp").code == 0
    sums = shown(daemon, "stats", "nets", "--net", "tcp")["sums"]
    assert (sums[0]["net"], sums[0]["nis"]) == ("tcp", 2)
    assert sums[0]["send_count"] == sum(sums[0]["sent_stats"].values()) > 0
    assert sums[0]["send_length"] == sums[0]["recv_length"] > 0  # to itself
    assert shown(daemon, "stats", "peers", "--nid", "127.0.1.2@tcp")["sums"][0]["nis"] >= 1
    heat = shown(daemon, "stats", "heat", "--top", "1")["use"]
    assert len(heat) == 1 and heat[0]["heat"] > 0
    assert shown(daemon, "stats", "heat", "--peers")["use"]
    assert daemon.lnetctl("stats", "reset", "--all") == (0, "", "")
    assert [one["send_count"] for one in shown(daemon, "stats", "nets")["sums"]] == [0, 0]
    wrong = daemon.lnetctl("stats", "heat", "--top", "-1")
    assert (wrong.code, "--top -1" in wrong.err) == (234, True)
    assert daemon.lnetctl("stats", "nets", "--net", "tcp9").code == 253


@pytest.mark.requirement("dbg-065", "dbg-100")
def test_peers_are_shown_page_by_page(daemon: Daemon) -> None:
    for number in range(1, 6):
        assert daemon.lnetctl("peer", "add", "--prim_nid", f"127.0.9.{number}@tcp").code == 0
    pages = []
    after: list[str] = []
    while page := (shown(daemon, "peer", "show", "--max", "2", *after) or {}).get("peer"):
        pages.append([peer["primary nid"] for peer in page])
        after = ["--after", pages[-1][-1]]
    assert pages == [[f"127.0.9.{number}@tcp" for number in some] for some in ((1, 2), (3, 4), (5,))]
    for words, told in (
        (["--max", "-1"], "--max -1"),
        (["--max", "x"], "--max 'x' is not a number"),
        (["--after", "banana"], "banana"),
    ):
        refused = daemon.lnetctl("peer", "show", *words)
        assert (bool(refused.code), refused.out, told in refused.err) == (True, "", True)

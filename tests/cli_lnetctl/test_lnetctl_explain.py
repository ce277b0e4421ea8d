"""`lnetctl explain`: the choice of path with its reasons, as table and as JSON."""

from __future__ import annotations

import json

import pytest
import yaml

from support.daemon import Daemon
from ulnet.cli.lnetctl_explain import table
from ulnet.cli.ulnet import main as ulnet


@pytest.fixture(scope="module")
def daemon(lasting_daemon: Daemon) -> Daemon:
    """A node with three NIs on two nets, and a peer with as many; it is only asked."""
    for nid in ("127.0.0.2@tcp", "127.0.1.2@tcp", "127.0.2.2@tcp1"):
        assert lasting_daemon.lnetctl("net", "add", "--nid", nid).code == 0
    peer = ("--prim_nid", "127.0.0.3@tcp", "--nid", "127.0.1.3@tcp,127.0.2.3@tcp1")
    assert lasting_daemon.lnetctl("peer", "add", *peer).code == 0
    return lasting_daemon


def test_the_table_names_every_candidate_and_the_winner(daemon: Daemon) -> None:
    told = daemon.lnetctl("explain", "--to", "127.0.0.3@tcp", "--size", "1048576")
    assert (told.code, told.err) == (0, "")
    lines = told.out.splitlines()
    assert lines[0].startswith("127.0.0.2@tcp -> 127.0.0.3@tcp")
    for name in ("tcp1", "127.0.1.2@tcp", "127.0.2.2@tcp1", "127.0.1.3@tcp"):
        assert any(line.startswith(name) for line in lines)
    for criterion in ("peer-net health", "UDSP priority", "NUMA distance", "expected completion", "credits"):
        assert criterion in told.out
    header = next(line for line in lines if line.startswith("local NI ")).split("  ")
    columns = [title.strip() for title in header if title.strip()]
    values = next(line for line in lines if line.startswith("127.0.1.2@tcp")).split()
    assert {values[columns.index(name)] for name in ("usable", "progress")} == {"yes"}
    assert sum(line.endswith("chosen") for line in lines) == 5  # net, local NI and peer NI twice


def test_json_has_the_same_and_a_source_binds(daemon: Daemon) -> None:
    told = json.loads(daemon.lnetctl("explain", "--json", "--to", "127.0.1.3@tcp").out)
    assert (told["from"], told["to"]) == ("127.0.0.2@tcp", "127.0.0.3@tcp")
    assert told["stages"][0]["stage"] == "net"
    bound = ("explain", "--json", "--to", "127.0.1.3@tcp", "--from", "127.0.1.2@tcp")
    told = json.loads(daemon.lnetctl(*bound).out)
    assert (told["from"], told["to"], told["stages"]) == ("127.0.1.2@tcp", "127.0.1.3@tcp", [])
    assert daemon.lnetctl("peer", "list").out.count("nid") == 1  # asking makes no peer


def test_a_drained_ni_is_named_as_left_out(daemon: Daemon) -> None:
    assert daemon.lnetctl("net", "set", "--nid", "127.0.1.2@tcp", "--drain", "1").code == 0
    try:
        told = json.loads(daemon.lnetctl("explain", "--json", "--to", "127.0.0.3@tcp").out)
        (left_out,) = [one for one in told["stages"] if one["stage"] == "left out"]
        assert left_out["candidates"] == [{"name": "127.0.1.2@tcp", "values": {}, "outcome": "drained"}]
        others = [one["name"] for stage in told["stages"] for one in stage["candidates"] if stage != left_out]
        assert "127.0.1.2@tcp" not in others and "127.0.2.2@tcp1" in others
        lines = daemon.lnetctl("explain", "--to", "127.0.0.3@tcp").out.splitlines()
        assert lines[-1].split() == ["127.0.1.2@tcp", "drained"]
    finally:
        assert daemon.lnetctl("net", "set", "--nid", "127.0.1.2@tcp", "--drain", "0").code == 0
    assert "left out" not in daemon.lnetctl("explain", "--to", "127.0.0.3@tcp").out


def test_where_all_nis_are_drained_that_is_said(daemon: Daemon) -> None:
    nids = "127.0.0.2@tcp", "127.0.1.2@tcp", "127.0.2.2@tcp1"
    for nid in nids:
        assert daemon.lnetctl("net", "set", "--nid", nid, "--drain", "1").code == 0
    try:
        told = daemon.lnetctl("explain", "--to", "127.0.0.3@tcp")
        assert told.code == 143
        assert (
            "no route to 127.0.0.3@tcp: no NI on tcp takes anything new: 127.0.0.2@tcp is drained: "
            in told.err
        )
        assert "'lnetctl net set --nid 127.0.0.2@tcp --drain 0' uses it again" in told.err
    finally:
        for nid in nids:
            assert daemon.lnetctl("net", "set", "--nid", nid, "--drain", "0").code == 0


def test_shows_are_json_too(daemon: Daemon) -> None:
    for words in (("net", "show", "-v"), ("peer", "show"), ("global", "show"), ("stats", "show")):
        told = daemon.lnetctl(*words, "--json")
        assert (told.code, told.err) == (0, "")
        shown = yaml.safe_load(daemon.lnetctl(*words).out)
        assert list(json.loads(told.out)) == list(shown)
    assert json.loads(daemon.lnetctl("route", "show", "--json").out) == {"route": []}


def test_several_nets_are_shown_at_once(daemon: Daemon) -> None:
    for words in (("--net", "tcp1,tcp"), ("-n", "tcp1", "-n", "tcp")):
        shown = yaml.safe_load(daemon.lnetctl("net", "show", *words).out)["net"]
        assert [net["net type"] for net in shown] == ["tcp1", "tcp"]


def test_which_nid(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["which-nid", "--socket", str(daemon.path), "127.0.2.3@tcp1,10.0.0.1@tcp9", "127.0.0.3@tcp"]
    assert ulnet(words) == 0
    assert capsys.readouterr().out == "127.0.0.3@tcp\n"
    assert ulnet([*words, "--all"]) == 0
    assert capsys.readouterr().out == (
        "127.0.0.3@tcp  1 hop from 127.0.0.2@tcp\n127.0.2.3@tcp1  1 hop from 127.0.2.2@tcp1\n"
    )
    assert ulnet([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0] == {
        "nid": "127.0.0.3@tcp",
        "hops": 1,
        "source": "127.0.0.2@tcp",
    }
    assert ulnet(["which-nid", "--socket", str(daemon.path), "10.0.0.1@tcp9"]) == 1
    assert "10.0.0.1@tcp9 is out of reach" in capsys.readouterr().err


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_table_fits_its_width(daemon: Daemon, width: int) -> None:
    told = json.loads(daemon.lnetctl("explain", "--json", "--to", "127.0.0.3@tcp").out)
    whole, fitted = (table({"explain": told}, columns) for columns in (0, width))
    assert max(map(len, whole.splitlines())) > width
    assert max(map(len, fitted.splitlines())) <= width
    assert sorted(set(whole.split())) == sorted(set(fitted.split()))


@pytest.mark.parametrize(
    ("words", "number", "text"),
    [
        ((), -22, "--to NID"),
        (("--to", "10.0.0.1@banana"), -22, "banana"),
        (("--to", "127.0.0.3@o2ib"), -113, "no route to 127.0.0.3@o2ib"),
        (("--to", "0@lo"), -22, "no peer's interface"),
        (("--to", "127.0.0.3@tcp", "--from", "1.2.3.4@tcp"), -22, "source NID 1.2.3.4@tcp"),
        (("--to", "127.0.0.3@tcp", "--size", "9999999"), -22, "0 to 1048576"),
        (("--to", "127.0.0.3@tcp", "--size", "many"), -22, "many"),
        (("--to", "127.0.0.3@tcp", "--numa", "-1"), -22, "numbered from 0"),
    ],
)
def test_bad_words(daemon: Daemon, words: tuple[str, ...], number: int, text: str) -> None:
    told = daemon.lnetctl("explain", *words)
    assert told.code == 256 + number
    (error,) = yaml.safe_load(told.err)["show"]
    fields = error["explain"]
    assert fields["errno"] == number
    assert text in fields["descr"]

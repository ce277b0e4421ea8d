"""What a node would choose, worked out from what it shows; kernel nodes from transcripts."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from observe.conftest import Answers, Tool
from support.daemon import Daemon
from support.ports import free_port
from support.transcripts import read_steps
from ulnet.cli.ulnet import main
from ulnet.dlc.model import Explain
from ulnet.observe.paper import configuration, explain, explain_at
from ulnet.observe.snapshot import PARTS, Snapshot
from ulnet.observe.source import FileSource, SocketSource

Make = Callable[[Answers], Tool]
OWN = ["127.6.3.1@tcp", "127.6.3.2@tcp", "127.6.4.1@tcp1"]
PEER = "127.6.3.9@tcp"


def shown(nis: list[dict[str, Any]], **more: Any) -> Snapshot:
    net = {"net type": "tcp", "local NI(s)": [{"status": "up", **ni} for ni in nis]}
    return Snapshot("node", {"net": {"net": [net]}, **{name: {PARTS[name].key: more[name]} for name in more}})


def choice(snapshot: Snapshot, to: str, **words: Any) -> tuple[dict[str, Any], list[str]]:
    document, notes = asyncio.run(explain(snapshot, Explain(to, **words)))
    return document["explain"], notes


@pytest.mark.parametrize("balance", ["expected", "documents"])
def test_on_paper_a_node_chooses_as_it_does(tmp_path: Path, balance: str) -> None:
    """Health, priorities, a rule, a NID of nobody: by its own word and by ours."""
    port = str(free_port())
    daemon = Daemon(tmp_path / "s", "--accept", "all", "--accept-port", port, "--balance", balance)
    try:
        for nid in OWN:
            assert daemon.lnetctl("net", "add", "--nid", nid).code == 0
        nids = f"{PEER},127.6.3.8@tcp,127.6.4.9@tcp1"
        for words in (
            ("set", "discovery", "0"),
            ("peer", "add", "--prim_nid", PEER, "--nid", nids),
            ("peer", "add", "--prim_nid", "127.6.3.7@tcp", "--non_mr"),
            ("udsp", "add", "--src", OWN[1], "--priority", "0"),
            ("set", "health_sensitivity", "0"),
            ("net", "set", "--nid", OWN[0], "--health", "700"),
            ("peer", "set", "--nid", "127.6.3.8@tcp", "--health", "300"),
        ):
            done = daemon.lnetctl(*words)
            assert done.code == 0, (words, done)
        source = SocketSource(str(daemon.path))
        snapshot = source.read(60)
        if balance == "documents":  # as of a kernel node
            for _, ni in snapshot.local_nis():
                del ni["load"]  # type: ignore[attr-defined]
        for request in (
            Explain(PEER),
            Explain(PEER, source=OWN[0]),
            Explain("127.6.4.9@tcp1", size=1 << 20),
            Explain("127.6.3.7@tcp"),
            Explain("127.6.3.99@tcp"),
        ):
            own, notes = explain_at(source, request, 60)
            assert notes == []
            assert asyncio.run(explain(snapshot, request))[0] == own, request
        for request in (Explain("10.0.0.1@tcp9"), Explain("banana"), Explain(PEER, source="1.2.3.4@tcp")):
            with pytest.raises(ValueError, match=r".") as its_own:
                explain_at(source, request, 60)
            with pytest.raises(ValueError, match=f"^{re.escape(str(its_own.value))}$"):
                asyncio.run(explain(snapshot, request))
        source.close()
    finally:
        daemon.end()


@pytest.mark.parametrize(("release", "host"), [("", "vmA"), ("release-2.15.8", "vmC")])
def test_a_kernel_node_of_the_transcripts_is_explained(
    shared: Path, make_tool: Make, capsys: pytest.CaptureFixture[str], release: str, host: str
) -> None:
    answers: dict[str, tuple[str, str, object]] = {}
    for step in read_steps(shared / "reference" / release, ["12_show", "21_after_traffic"]):
        if step.host == host:
            answers.setdefault(step.command.removeprefix("lnetctl "), (step.out, step.err, step.code))
    tool = make_tool(answers)
    assert main(["explain", "--tool", tool.command, "--to", "192.168.110.12@tcp", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["case"].startswith("Multi-Rail peer")
    own = [f"192.168.{net}.{11 if host == 'vmA' else 13}@tcp" for net in (110, 111)]
    assert (told["from"], told["to"]) == (own[0], "192.168.110.12@tcp")
    assert told["notes"] == [
        f"{own[0]} and {own[1]} take turns: whose it is no document tells",
        "192.168.110.12@tcp and 192.168.111.12@tcp take turns: whose it is no document tells",
    ]
    assert main(["explain", "--tool", tool.command, "--to", "192.168.110.12@tcp"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{own[0]} -> 192.168.110.12@tcp")
    assert lines[-1].startswith("note: ")
    tool.answer({"*": ("", "cannot open /dev/lnet", 255)})
    assert main(["explain", "--tool", tool.command, "--to", "192.168.110.12@tcp"]) == 1
    assert "cannot open /dev/lnet" in capsys.readouterr().err


def test_health_a_link_that_is_down_and_busy_peers_decide() -> None:
    nis = [{"nid": f"10.0.0.{n}@tcp", "health stats": {"health value": 1000}} for n in (1, 2, 3)]
    nis[0]["health stats"] = {"health value": 900}
    peers = [{"nid": f"10.0.0.{n}@tcp", "available_tx_credits": 8, "tx_q_num_of_buf": 0} for n in (8, 9)]
    peers[0]["tx_q_num_of_buf"] = 70000
    peer = [{"primary nid": "10.0.0.8@tcp", "Multi-Rail": True, "peer ni": peers}]
    told, notes = choice(shown(nis, peer=peer), "10.0.0.8@tcp")
    assert (told["from"], told["to"]) == ("10.0.0.2@tcp", "10.0.0.9@tcp")
    assert notes == ["10.0.0.2@tcp and 10.0.0.3@tcp take turns: whose it is no document tells"]
    outcomes = {one["name"]: one["outcome"] for stage in told["stages"] for one in stage["candidates"]}
    assert outcomes["10.0.0.1@tcp"] == "out by health"
    assert outcomes["10.0.0.8@tcp"] == "out by queued bytes"
    nis[1]["status"] = "down"
    told, notes = choice(shown(nis, peer=peer), "10.0.0.8@tcp")
    assert (told["from"], notes) == ("10.0.0.3@tcp", [])


def test_routes_that_are_down_and_what_cannot_be_taken_over_are_told() -> None:
    nis = [{"nid": "10.0.0.1@tcp"}]
    routes = [
        {"net": "tcp7", "gateway": "10.0.0.9@tcp", "hop": -1, "state": "down"},
        {"net": "tcp7", "gateway": "10.0.0.8@tcp", "hop": 5, "state": "up"},
    ]
    told, notes = choice(shown(nis, route=routes), "10.7.0.1@tcp7")
    assert (told["via"], told["to"]) == ("10.0.0.8@tcp", "10.7.0.1@tcp7")
    assert notes == ["the route to tcp7 by 10.0.0.9@tcp is down: it is left out"]
    with pytest.raises(ValueError, match=r"tcp7.*; the route to tcp7 by 10\.0\.0\.9@tcp is down"):
        choice(shown(nis, route=routes[:1]), "10.7.0.1@tcp7")
    odd = {"no_such_setting": 7}
    _, notes = choice(shown(nis, settings=odd), "10.0.0.2@tcp")
    assert len(notes) == 1 and "no_such_setting" in notes[0]


def test_cpts_and_drivers_are_those_of_the_node() -> None:
    nis = [{"nid": "10.0.0.1@o2ib3", "CPT": "[0,7]"}, {"nid": "2@gni", "CPT": "[1]"}]
    parts = {"net": {"net": [{"net type": str(ni["nid"]).split("@")[1], "local NI(s)": [ni]} for ni in nis]}}
    told, notes = choice(Snapshot("node", parts), "10.0.0.9@o2ib3", numa=7)
    assert (told["from"], notes) == ("10.0.0.1@o2ib3", [])


@pytest.mark.parametrize(
    "text",
    [
        "net:\n- net type: tcp\n  local NI(s):\n  - nid: 7\n    status: [up]\n    health stats: x\n",
        "net:\n- net type: 7\n  local NI(s):\n  - nid: 10.0.0.1@tcp\n    CPT: '[99999999999]'\n",
        "net: []\npeer: 7\nroute: x\nglobal: []\nudsp: {}\n",
        "net: x\n",
        "a: b\n",
    ],
)
def test_documents_of_no_node_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "odd").write_text(text)
    with pytest.raises(ValueError, match=r"no NI|no route|tells nothing|no way|EHOST|cannot be reached"):
        explain_at(FileSource(str(tmp_path / "odd")), Explain("10.0.0.2@tcp"), 5)


def test_what_a_kernel_node_lists_of_itself_is_no_peer() -> None:
    own = {"primary nid": "10.0.0.1@tcp", "peer ni": [{"nid": "10.0.0.1@tcp"}], "peer state": 0}
    loop = {"primary nid": "0@lo", "peer ni": [{"nid": "0@lo"}]}
    snapshot = shown([{"nid": "10.0.0.1@tcp"}], peer=[own, loop])
    assert yaml.safe_load(configuration(snapshot)).get("peer") is None
    assert choice(snapshot, "10.0.0.2@tcp")[1] == []

"""`ulnet check`, `diff` and `doctor` take nodes that run, ulnet's and the kernel's; idle rails."""

from __future__ import annotations

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
from ulnet.observe.rails import few_rails, idle_rails
from ulnet.observe.snapshot import PARTS, Snapshot

Make = Callable[[Answers], Tool]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(list(words))
    told = capsys.readouterr()
    return status, told.out, told.err


@pytest.mark.parametrize(("release", "host"), [("", "vmA"), ("release-2.15.8", "vmC")])
def test_a_kernel_nodes_backup_is_checked_and_compared(
    shared: Path,
    tmp_path: Path,
    make_tool: Make,
    capsys: pytest.CaptureFixture[str],
    release: str,
    host: str,
) -> None:
    (backup,) = [
        step.out
        for step in read_steps(shared / "reference" / release, ["21_after_traffic"])
        if step.command == "lnetctl export --backup" and step.host == host
    ]
    tool = make_tool({"export --backup": (backup, "", 0)})
    assert run(capsys, "check", "--tool", tool.command) == (0, "1 file: nothing wrong\n", "")
    same = tmp_path / "same.yaml"
    same.write_text(backup)
    assert run(capsys, "diff", "--tool", tool.command, str(same)) == (0, "", "")
    same.write_text(backup.replace("discovery: 1", "discovery: 0"))
    status, out, _ = run(capsys, "diff", "--tool", tool.command, str(same))
    assert status == 1
    assert "discovery" in out
    assert set(tool.asked) == {"export --backup"}


@pytest.mark.parametrize("words", [["check"], ["diff", "/dev/null"]])
def test_a_tool_that_hangs_or_fails_is_told(
    make_tool: Make, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setattr(f"ulnet.cli.{words[0]}._PATIENCE", 0.3)
    tool = make_tool({"*": ("net:", "", "hangs")})
    status, _, err = run(capsys, *words, "--tool", tool.command)
    assert (status, err) == (2, f"ulnet {words[0]}: export --backup: no end in 0.3 s\n")
    tool.answer({"*": ("", "no LNet", 1)})
    assert run(capsys, *words, "--tool", tool.command)[2].endswith(
        "export --backup: exit status 1: no LNet\n"
    )


def test_check_needs_something_to_check(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["check"])
    assert "name a file, or a node" in capsys.readouterr().err


def test_an_lnetd_is_checked_compared_and_examined(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = Daemon(tmp_path / "s", "--accept", "all", "--accept-port", str(free_port()))
    try:
        for words in (
            ("net", "add", "--nid", "127.6.5.1@tcp,127.6.5.2@tcp"),
            ("set", "discovery", "0"),
            ("peer", "add", "--prim_nid", "127.6.5.9@tcp"),
            ("peer", "add", "--prim_nid", "127.6.5.8@tcp", "--non_mr"),
            ("net", "set", "--nid", "127.6.5.2@tcp", "--health", "0"),
        ):
            assert daemon.lnetctl(*words).code == 0
        at = ("--socket", str(daemon.path))
        status, out, _ = run(capsys, "check", *at)
        assert (status, "peer 127.6.5.9@tcp has one NID" in out) == (0, True)
        (tmp_path / "file").write_text(daemon.lnetctl("export", "--backup").out)
        assert run(capsys, "diff", *at, str(tmp_path / "file")) == (0, "", "")
        status, out, _ = run(capsys, "doctor", *at)
        assert "127.6.5.2@tcp" in out
        assert (
            "127.6.5.8@tcp: warning: messages to 127.6.5.8@tcp keep to one rail of 2: discovery is off here"
            in out
        )
        assert "127.6.5.9@tcp: warning: messages to 127.6.5.9@tcp go to one NID" in out
    finally:
        daemon.end()
    status, out, err = run(capsys, "doctor", *at)
    assert (status, out, "no lnetd answers" in err) == (2, "", True)


def snapshot(nis: list[dict[str, Any]], **more: Any) -> Snapshot:
    net = {"net type": "tcp", "local NI(s)": [{"status": "up", **ni} for ni in nis]}
    return Snapshot("node", {"net": {"net": [net]}, **{name: {PARTS[name].key: more[name]} for name in more}})


TWO = [{"nid": "10.0.0.1@tcp"}, {"nid": "10.0.0.2@tcp"}]


@pytest.mark.parametrize(
    ("peer", "settings", "why"),
    [
        ({"Multi-Rail": False, "peer state": 0x12}, {}, "discovery is off there"),
        ({"Multi-Rail": False, "peer state": 0x10}, {"discovery": 0}, "discovery is off here"),
        ({"Multi-Rail": False}, {"discovery": 1}, "not Multi-Rail, or was not discovered"),
        ({"Multi-Rail": True}, {}, "it told no other"),
    ],
)
def test_why_a_peer_is_reached_over_one_rail(
    peer: dict[str, Any], settings: dict[str, int], why: str
) -> None:
    named = {"primary nid": "10.0.0.9@tcp", "peer ni": [{"nid": "10.0.0.9@tcp"}], **peer}
    ((name, text),) = few_rails(snapshot(TWO, peer=[named], settings=settings))
    assert name == "10.0.0.9@tcp"
    assert why in text
    assert not list(few_rails(snapshot(TWO[:1], peer=[named], settings=settings)))
    far = {**named, "peer ni": [{"nid": "10.0.0.9@tcp7"}]}
    assert not list(few_rails(snapshot(TWO, peer=[far], settings=settings)))


def test_peers_with_several_rails_and_the_node_itself_are_no_finding() -> None:
    peers = [
        {"primary nid": "a@tcp", "Multi-Rail": True, "peer ni": [{"nid": "8@tcp"}, {"nid": "9@tcp"}]},
        {"primary nid": "10.0.0.1@tcp", "peer ni": [{"nid": "10.0.0.1@tcp"}]},
        {"primary nid": "0@lo", "peer ni": [{"nid": "0@lo"}]},
    ]
    assert not list(few_rails(snapshot(TWO, peer=peers)))


@pytest.mark.parametrize(
    ("idle", "why"),
    [
        ({"health stats": {"health value": 100}}, "its health is 100"),
        ({"udsp info": {"nid priority": 3}}, "a selection rule prefers another"),
        ({"drained": 1}, "it is drained"),
        ({}, "ulnet explain"),
    ],
)
def test_why_an_ni_carries_nothing(idle: dict[str, Any], why: str) -> None:
    busy = {"nid": "10.0.0.1@tcp", "statistics": {"send_count": 1000}, "udsp info": {"nid priority": 2}}
    other = {"nid": "10.0.0.2@tcp", "statistics": {"send_count": 1}, "udsp info": {"nid priority": 2}, **idle}
    ((name, text),) = idle_rails(snapshot([busy, other]))
    assert name == "10.0.0.2@tcp"
    assert text.startswith("10.0.0.2@tcp sent 1 of 1001 messages of 2 NIs of its net: ")
    assert why in text
    few = [{**busy, "statistics": {"send_count": 50}}, {**other, "statistics": {"send_count": 0}}]
    assert not list(idle_rails(snapshot(few)))


def test_yaml_of_another_shape_is_no_rail() -> None:
    for text in (
        "peer: 7",
        "peer:\n- 8\n- peer ni: 9\n",
        "peer:\n- primary nid: [1]\n  peer ni:\n  - x: 1\n",
    ):
        odd = Snapshot("node", {"net": {"net": []}, "peer": yaml.safe_load(text)})
        assert list(few_rails(odd)) == list(idle_rails(odd)) == []

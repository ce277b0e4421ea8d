"""`ulnet health`: one line and an exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from observe.conftest import Answers, Tool
from support.daemon import PATIENCE, Daemon, Done, environment
from support.ports import free_port


def ni(nid: str, status: str = "up", health: int = 1000, **more: Any) -> dict[str, Any]:
    return {"nid": nid, "status": status, "health stats": {"health value": health}, **more}


def net(name: str, *nis: dict[str, Any]) -> dict[str, Any]:
    return {"net type": name, "local NI(s)": list(nis)}


def peer(nid: str, *members: tuple[str, int]) -> dict[str, Any]:
    nis = [{"nid": one, "state": "up", "health stats": {"health value": value}} for one, value in members]
    return {"primary nid": nid, "Multi-Rail": True, "peer ni": nis}


def route(to: str, gateway: str, state: str) -> dict[str, Any]:
    return {"net": to, "gateway": gateway, "hop": -1, "priority": 0, "state": state}


def health(*words: str) -> Done:
    done = subprocess.run(
        [sys.executable, "-m", "ulnet", "health", *words],
        env=environment(), capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


A, B = "10.0.0.1@tcp", "10.0.1.1@tcp"
WELL = {"net": [net("lo", ni("0@lo", health=0)), net("tcp", ni(A), ni(B))]}


@pytest.mark.parametrize(
    ("document", "code", "line"),
    [
        (WELL, 0, "OK: 2 NIs up on 1 net, 0 peers"),
        ({**WELL, "peer": [peer(A, (A, 1000))]}, 0, "OK: 2 NIs up on 1 net, 1 peer"),
        ({"net": [net("tcp", ni(A, "down"), ni(B))]}, 1, f"WARNING: {A} is down"),
        (
            {"net": [net("tcp", ni(A, "down"), ni(B, "down"))]},
            2,
            "CRITICAL: net tcp is down: no NI of it is up",
        ),
        ({"net": [net("tcp", ni(A, health=900))]}, 1, f"WARNING: {A} has health 900"),
        (
            {"net": [net("tcp", ni(A, load={"degraded": {"rate": "took a tenth"}}))]},
            1,
            f"WARNING: {A} is degraded: took a tenth",
        ),
        (
            {**WELL, "peer": [peer("1.1.1.1@tcp", ("1.1.1.1@tcp", 1000), ("1.1.2.1@tcp", 0))]},
            1,
            "WARNING: peer NI 1.1.2.1@tcp of peer 1.1.1.1@tcp has health 0",
        ),
        (
            {**WELL, "route": [route("o2ib", "10.0.0.9@tcp", "down"), route("o2ib", "10.0.0.8@tcp", "up")]},
            1,
            "WARNING: gateway 10.0.0.9@tcp to o2ib is down",
        ),
        ({**WELL, "route": [route("o2ib", "10.0.0.9@tcp", "down")]}, 2, "CRITICAL: no gateway to o2ib is up"),
        (
            {
                **WELL,
                "peer": [peer(A, *((f"1.1.1.{n}@tcp", 5) for n in range(5)))],
                "route": [route("o2ib", A, "down")],
            },
            2,
            f"CRITICAL: no gateway to o2ib is up; peer NI 1.1.1.0@tcp of peer {A} has health 5; "
            f"peer NI 1.1.1.1@tcp of peer {A} has health 5; and 3 more",
        ),
    ],
)
def test_what_a_file_tells(tmp_path: Path, document: dict[str, Any], code: int, line: str) -> None:
    (tmp_path / "shown.yaml").write_text(yaml.safe_dump(document))
    assert health("--file", str(tmp_path / "shown.yaml")) == (code, line + "\n", "")


def test_findings_as_json(tmp_path: Path) -> None:
    (tmp_path / "shown.yaml").write_text(yaml.safe_dump({"net": [net("tcp", ni(A, health=1))]}))
    done = health("--json", "--file", str(tmp_path / "shown.yaml"))
    found = json.loads(done.out)
    assert (done.code, found["level"]) == (1, "WARNING")
    assert found["findings"] == [{"level": "WARNING", "text": f"{A} has health 1"}]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--socket", "/no/such/socket"], "no lnetd answers"),
        (["--file", "/no/such/file"], "No such file or directory"),
        (["--tool", "/no/such/tool"], "cannot be run"),
        (["--file", "/etc/hostname"], "no"),
    ],
)
def test_nothing_is_known(words: list[str], why: str) -> None:
    done = health(*words)
    assert done.code == 3
    assert done.out.startswith("UNKNOWN: ")
    assert why in done.out
    assert done.out.count("\n") == 1


@pytest.mark.parametrize("words", [["--timeout", "0"], ["--timeout", "x"], ["--tool", " "], ["--bogus"]])
def test_wrong_words_are_no_finding(words: list[str]) -> None:
    done = health(*words)
    assert (done.code, done.out) == (3, "")
    assert done.err


def test_a_daemon_and_a_tool(tmp_path: Path, make_tool: Callable[[Answers], Tool]) -> None:
    daemon = Daemon(tmp_path / "s", "--accept", "all", "--accept-port", str(free_port()))
    try:
        assert daemon.lnetctl("net", "add", "--nid", "127.6.2.1@tcp").code == 0
        assert health("--socket", str(daemon.path)) == (0, "OK: 1 NI up on 1 net, 0 peers\n", "")
        assert daemon.lnetctl("net", "set", "--nid", "127.6.2.1@tcp", "--drain", "1").code == 0
    finally:
        daemon.end()
    tool = make_tool({"net show -v 4": (yaml.safe_dump(WELL), "", 0)})
    assert health("--tool", tool.command) == (0, "OK: 2 NIs up on 1 net, 0 peers\n", "")
    tool.answer({"*": ("", "", "hangs")})
    done = health("--tool", tool.command, "--timeout", "0.5")
    assert done.code == 3
    assert "no end in 0.5 s" in done.out

"""lnetctl's routes, routing and router buffers: as recorded on a real node, from files, and bad words."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from support.daemon import Daemon, Done
from support.shared import shared_path
from support.transcripts import Step, read_steps


def translated(text: str) -> str:
    return text.replace("192.168.110.", "127.0.0.")


def shape(error: str) -> list[tuple[str, str, int]]:
    """Verb, entity and errno of each error in the YAML."""
    if not error:
        return []
    found = []
    for verb, items in yaml.safe_load(error).items():
        for item in items:
            entity = next(key for key in item if key not in ("errno", "descr"))
            fields = item[entity] or item
            found.append((verb, entity, fields["errno"]))
    return found


@pytest.fixture
def node(daemon: Daemon) -> Daemon:
    """A daemon on net tcp."""
    assert daemon.lnetctl("net", "add", "--nid", "127.0.0.1@tcp").code == 0
    return daemon


@pytest.fixture(scope="module")
def lasting_node(lasting_daemon: Daemon) -> Daemon:
    """The same, for all that is refused."""
    assert lasting_daemon.lnetctl("net", "add", "--nid", "127.0.0.1@tcp").code == 0
    return lasting_daemon


def steps() -> list[Step]:
    folder = shared_path("reference")
    return [step for step in read_steps(folder) if step.file == "15_route"]


@pytest.mark.requirement("RTR")
def test_a_session_of_a_real_node(node: Daemon) -> None:
    """Every command of the transcript: the same output, or the same errno; states of gateways aside."""
    compared = 0
    for step in steps():
        words = translated(step.command).split()[1:]
        if words[:2] in (["peer", "show"], ["routing", "show"]):
            continue
        done = node.lnetctl(*words)
        if step.out.startswith(("route", "missing")) or not step.out:
            assert without_states(done.out) == without_states(translated(step.out)), step.command
        assert shape(done.err) == shape(step.err), step.command
        expected = step.code if not step.err else 256 + shape(step.err)[0][2]
        assert done.code == expected, step.command
        compared += 1
    assert compared == 32


def without_states(text: str) -> object:
    """The YAML, or the plain words; of routes in no order, as this differs between nodes."""
    if not text.startswith("route:"):
        return text
    routes = yaml.safe_load(text)["route"]
    for route in routes:
        assert route.pop("state", "up") in ("up", "down")
    return sorted(map(str, routes))


@pytest.mark.requirement("RTR")
def test_routing_switched_on_and_off(node: Daemon) -> None:
    ask = node.lnetctl
    off = "lnetctl: note: routing is off on this node"
    turned_on = f"{off}: 'lnetctl set routing 1' turns it on\n"
    assert ask("routing", "show") == (0, "", turned_on)
    for name in ("tiny_buffers", "small_buffers", "large_buffers"):
        first = "'lnetctl set routing 1' comes first, and begins with the defaults"
        assert ask("set", name, "64") == (0, "", f"{off}, so nothing was set: {first}\n")
    assert ask("routing", "show", "--json").err == turned_on
    assert ask("set", "routing", "1") == (0, "", "")
    real = next(step for step in steps() if step.command == "lnetctl routing show")
    *lines, note = ask("routing", "show").out.splitlines()
    assert lines == real.out.replace("enable: 2", "enable: 3").splitlines()
    assert re.fullmatch(r"# routing will have started within (1[01])?[0-9]+ s", note)
    assert 0 < json.loads(ask("routing", "show", "--json").out)["seconds left"] <= 110
    assert ask("set", "large_buffers", "16") == (0, "", "")
    shown = yaml.safe_load(ask("routing", "show").out)
    assert shown["buffers"] == {"tiny": 2048, "small": 16384, "large": 16}
    assert shown["routing"][0]["cpt[0]"]["large"] == {
        "npages": 256,
        "nbuffers": 16,
        "credits": 16,
        "mincredits": 16,
    }
    assert ask("set", "routing", "0") == (0, "", "")
    stopping = ask("routing", "show").out
    assert yaml.safe_load(stopping)["routing"][-1] == {"enable": 2}
    assert "# routing will have stopped within " in stopping
    assert ask("set", "routing", "1") == (0, "", "")
    shown = yaml.safe_load(ask("routing", "show").out)
    assert shown["routing"][-1] == {"enable": 3} and shown["buffers"]["large"] == 16


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        ("set routing 2", 255, ("parser", "set", -1)),
        ("set routing banana", 255, ("parser", "set", -1)),
        ("set tiny_buffers banana", 255, ("parser", "set", -1)),
        ("set large_buffers -5", 255, ("parser", "set", -1)),
        ("set routing", 234, ("add", "routing", -22)),
        ("route add --net tcp1 --gateway 127.0.0.9@tcp --hop x", 234, ("add", "route", -22)),
        ("route add --net lo --gateway 127.0.0.9@tcp", 234, ("add", "route", -22)),
        ("route add --net tcp1 --gateway 0@lo", 234, ("add", "route", -22)),
        ("route add --net tcp1 --gateway 127.0.0.1@tcp", 234, ("add", "route", -22)),
        ("route add --net tcp1 --gateway 127.0.0.9@tcp --priority 4294967296", 234, ("add", "route", -22)),
        ("route show --hop x", 234, ("show", "route", -22)),
        ("route del --net tcp1 --gateway 127.0.0.9@tcp", 254, ("del", "route", -2)),
    ],
)
def test_bad_words(lasting_node: Daemon, words: str, code: int, error: tuple[str, str, int]) -> None:
    done = lasting_node.lnetctl(*words.split())
    assert (done.code, done.out, shape(done.err)) == (code, "", [error])
    assert lasting_node.lnetctl("route", "show") == (0, "", "")


@pytest.mark.requirement("RTR", "cfg-170")
def test_routes_come_back_from_a_file(node: Daemon, tmp_path: Path) -> None:
    ask = node.lnetctl
    assert ask("route", "add", "--net", "tcp1", "--gateway", "127.0.0.9@tcp", "--hop", "2").code == 0
    assert ask("route", "add", "--net", "o2ib", "--gateway", "127.0.0.9@tcp", "--priority", "1").code == 0
    assert ask("set", "routing", "1").code == 0
    assert ask("set", "small_buffers", "99").code == 0
    file = tmp_path / "lnet.yaml"
    assert ask("export", "--backup", str(file)).code == 0
    saved = yaml.safe_load(file.read_text())
    assert list(saved)[:3] == ["net", "route", "routing"]
    assert saved["routing"] == {"enable": 1}
    assert saved["buffers"] == {"tiny": 2048, "small": 99, "large": 1024}
    assert ask("lnet", "unconfigure").code == 0
    assert ask("lnet", "configure").code == 0
    assert ask("import", str(file)) == (0, "", "")
    assert yaml.safe_load(ask("export", "--backup").out) == saved
    full = yaml.safe_load(ask("export").out)
    assert {route["state"] for route in full["route"]} <= {"up", "down"}
    assert ask("import", "--del", str(file)).code == 0
    assert ask("route", "show").out == ""


def test_what_a_route_needs_cannot_go(node: Daemon) -> None:
    ask = node.lnetctl
    assert ask("route", "add", "--net", "tcp1", "--gateway", "127.0.0.9@tcp").code == 0
    for done, code, text in (
        (ask("peer", "del", "--prim_nid", "127.0.0.9@tcp"), 240, "it is a gateway to net tcp1"),
        (ask("net", "add", "--nid", "127.0.0.2@tcp1"), 169, "net tcp1 is known as remote"),
    ):
        assert isinstance(done, Done)
        assert done.code == code
        assert text in done.err

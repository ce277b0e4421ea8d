"""`ulnet diff` and `ulnet plan`: by meaning, against files and against a node that stays as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.daemon import Daemon
from support.ports import free_port
from ulnet.cli.ulnet import main
from ulnet.dlc.config import read_config
from ulnet.dlc.differences import compare, meaning_of
from ulnet.dlc.model import NetAdd
from ulnet.host import Address, Link
from ulnet.node.dry_run import invented_links

ONE = """\
net:
    - net type: tcp0
      local NI(s):
        - interfaces: {0: eth0, 1: eth1}
          tunables: {peer_credits: 8, credits: 512}
peer:
    - primary nid: 10.0.0.2@tcp
      peer ni: [{nid: "10.0.1.[2-3]@tcp"}]
discovery: 1
retry_count: 3
udsp: [{src: tcp, priority: 0}]
"""
SAME = """\
numa: {range: 0}
global: {retry_count: 3, lnd_timeout: 20}
peers: [{nids: [10.0.0.2@tcp, 10.0.1.3@tcp, 10.0.1.2@tcp0]}]
udsp: [{idx: 0, src: tcp, action: {priority: 0}}]
net:
    - {net: tcp, intf: eth0, tunables: {credits: 512, peer_timeout: 180}, lnd tunables: {conns_per_peer: 4}}
    - {net: tcp, intf: eth1, tunables: {credits: 512}}
"""
OTHER = """\
net:
    - {net: tcp, intf: eth0, tunables: {credits: 256}}
    - {net: tcp1, nid: 10.0.9.1@tcp1}
peer: [{primary nid: 10.0.0.2@tcp, Multi-Rail: False, peer ni: [{nid: 10.0.1.2@tcp}]}]
route: [{net: o2ib, gateway: "10.0.0.[8-9]@tcp", hop: 2}]
"""


def meaning(text: str) -> dict[str, dict[str, object]]:
    config = read_config(text)
    assert config.errors == []
    return meaning_of(step.request for step in config.steps)


def test_how_it_is_written_makes_no_difference() -> None:
    assert compare(meaning(ONE), meaning(SAME)) == []
    assert compare(meaning(SAME), meaning(ONE)) == []


def test_differences_are_named_thing_by_thing() -> None:
    assert list(map(str, compare(meaning(ONE), meaning(OTHER)))) == [
        "~ net tcp NI eth0: credits 512 -> 256",
        "- net tcp NI eth1: peer_credits 8, credits 512",
        "~ peer 10.0.0.2@tcp: Multi-Rail True -> False",
        "~ peer 10.0.0.2@tcp: NIDs 10.0.0.2@tcp 10.0.1.2@tcp 10.0.1.3@tcp -> 10.0.0.2@tcp 10.0.1.2@tcp",
        "- setting retry_count: value 3",
        "- udsp src tcp: place 0, priority 0",
        "+ net tcp1 NI 10.0.9.1@tcp1",
        "+ route o2ib by 10.0.0.8@tcp: hop 2, priority 0",
        "+ route o2ib by 10.0.0.9@tcp: hop 2, priority 0",
    ]


MORE = ["numa_range: 4", "recovery_limit: 9", "response_tracking: 1"]


@given(st.permutations([*ONE.splitlines()[8:], *MORE]))
def test_the_order_of_sections_makes_no_difference(lines: list[str]) -> None:
    text = "\n".join([*ONE.splitlines()[:8], *lines])
    assert compare(meaning(text), meaning("\n".join([ONE, *MORE]))) == []


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path / "lnetd.sock", "--accept", "all", "--accept-port", str(free_port()))
    yield daemon
    daemon.end()


def test_diff_of_files_and_of_a_node(
    tmp_path: Path, node: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text(ONE)
    two.write_text(SAME)
    assert main(["diff", str(one), str(two)]) == 0
    assert capsys.readouterr().out == ""
    two.write_text(OTHER)
    assert main(["diff", "--json", str(one), str(two)]) == 1
    assert {change["thing"] for change in json.loads(capsys.readouterr().out)} >= {"setting retry_count"}
    assert node.lnetctl("net", "add", "--nid", "127.0.0.9@tcp").code == 0
    one.write_text("net: [{net: tcp, nid: 127.0.0.9@tcp}]\nnuma_range: 3\n")
    assert main(["diff", "--socket", str(node.path), str(one)]) == 1
    assert capsys.readouterr().out == "~ setting numa_range: value 3 -> 0\n"
    two.write_text('options lnet networks="tcp(')
    assert main(["diff", str(one), str(two)]) == 2
    two.write_text("foo: 1\n")
    assert main(["diff", str(one), str(two)]) == 2
    assert main(["diff", "--socket", str(tmp_path / "none"), str(one)]) == 2


def test_a_plan_knows_the_speed_of_interfaces_that_are_there() -> None:
    """It decides how many connections there are."""
    here = [Link("eth0", 2, mtu=9000, speed_mbps=100_000, addresses=(Address("10.0.0.1", 24),), numa_node=1)]
    links = invented_links([NetAdd("tcp", ["eth0", "eth1"])], here)
    assert links[0] == here[0]
    assert links[1].speed_mbps is None
    known = invented_links([NetAdd("tcp", ["eth0"], prefer="10.0.9.1@tcp")], here)[0]
    assert [one.ip for one in known.addresses] == ["10.0.0.1", "10.0.9.1"]
    assert (known.speed_mbps, known.mtu, known.numa_node) == (100_000, 9000, 1)


def test_a_node_is_brought_to_a_file(
    tmp_path: Path, node: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    ask, file = node.lnetctl, tmp_path / "wanted.yaml"

    def run(command: str) -> tuple[int, list[str]]:
        status = main([command, "--socket", str(node.path), str(file)])
        return status, capsys.readouterr().out.splitlines()

    assert ask("net", "add", "--nid", "127.0.0.7@tcp").code == 0
    assert ask("peer", "add", "--prim_nid", "10.0.0.2@tcp").code == 0
    file.write_text(ask("export", "--backup").out)
    assert run("plan") == (0, ["nothing to change"])
    assert run("apply") == (0, ["nothing to change"])
    assert ask("import", "--apply", str(file)).out == "apply: nothing to change\n"
    file.write_text(ask("export").out.replace("tos: -1", "tos: 16"))
    lines = ["~ net tcp NI 127.0.0.7@tcp: tos -1 -> 16"]
    assert run("plan") == (1, lines)
    assert run("apply") == (0, lines)
    assert "tos: 16" in ask("net", "show", "-v").out
    nets = "[{net: tcp, nid: 127.0.0.7@tcp}, {net: tcp1, nid: 127.0.0.8@tcp1}]"
    file.write_text(f"net: {nets}\nretry_count: 4\n")
    status, lines = run("plan")
    assert status == 1
    assert [line.partition(": ")[0] for line in lines] == [
        "~ setting retry_count",
        "+ net tcp1 NI 127.0.0.8@tcp1",
        "~ net tcp NI 127.0.0.7@tcp",
        "- peer 10.0.0.2@tcp",
    ]
    assert run("apply") == (0, lines)
    assert run("apply") == (0, ["nothing to change"])
    before = ask("export", "--backup").out
    wrong = "net: [{net: tcp2, nid: 127.0.0.9@tcp2}, {net: tcp, intf: nix0}]\n"
    for text, words in ((wrong, "no interface is named"), ("", "asks for nothing"), ("foo: 1\n", "foo")):
        file.write_text(text)
        for command in ("plan", "apply"):
            status, lines = run(command)
            assert status == 3
            assert len(lines) == 1
            assert lines[0].startswith("! ")
            assert words in lines[0]
        assert ask("import", "--apply", str(file)).code != 0
        assert ask("export", "--backup").out == before
    file.write_text(before.replace("retry_count: 4", "retry_count: 5"))
    assert main(["apply", "--json", "--socket", str(node.path), str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["changes"][0]["after"] == 5
    assert main(["apply", "--socket", str(tmp_path / "none"), str(file)]) == 2
    assert main(["apply", "--socket", str(node.path), str(tmp_path / "none")]) == 2


def test_what_the_options_name_holds_beneath_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    modprobe, file = tmp_path / "lustre.conf", tmp_path / "wanted.yaml"
    modprobe.write_text("options lnet lnet_retry_count=5\noptions ksocklnd credits=99 tos=4\n")
    file.write_text("net: [{net: tcp, nid: 127.0.0.9@tcp}]\n")
    options = ("--accept", "all", "--accept-port", str(free_port()), "--modprobe", str(modprobe))
    daemon = Daemon(tmp_path / "lnetd.sock", *options, "--config", str(file))
    try:
        assert main(["apply", "--socket", str(daemon.path), str(file)]) == 0
        assert capsys.readouterr().out == "nothing to change\n"
        file.write_text(file.read_text() + "retry_count: 1\n")
        assert main(["apply", "--socket", str(daemon.path), str(file)]) == 0
        assert capsys.readouterr().out == "~ setting retry_count: value 5 -> 1\n"
    finally:
        daemon.end()


def test_apply_keeps_what_selftest_was_begun_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "wanted.yaml"
    plain = "net: [{net: tcp, nid: 127.0.0.9@tcp}]\n"
    file.write_text(plain)
    options = ("--accept", "all", "--accept-port", str(free_port()), "--selftest")
    daemon = Daemon(tmp_path / "lnetd.sock", *options, "--config", str(file))
    apply = ["apply", "--socket", str(daemon.path), str(file)]
    try:
        assert main(apply) == 0
        assert capsys.readouterr().out == "nothing to change\n"
        assert daemon.lnetctl("import", "--apply", str(file)).out == "apply: nothing to change\n"
        assert daemon.lnetctl("set", "selftest", "0").code == 0
        assert main(apply) == 0
        assert capsys.readouterr().out == "~ setting selftest: value 0 -> 1\n"
        file.write_text(plain + "global: {selftest: 0}\n")
        assert main(apply) == 0
        assert capsys.readouterr().out == "~ setting selftest: value 1 -> 0\n"
    finally:
        daemon.end()


def test_a_plan_changes_nothing(tmp_path: Path, node: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    ask = node.lnetctl
    assert ask("net", "add", "--nid", "127.0.0.9@tcp").code == 0
    assert ask("peer", "add", "--prim_nid", "10.0.0.2@tcp", "--nid", "10.0.1.2@tcp1").code == 0
    before = ask("export", "--backup").out
    file = tmp_path / "new.yaml"
    file.write_text(
        "net:\n  - {net: tcp, nid: 127.0.0.9@tcp}\n  - {net: tcp1, nid: 127.0.0.8@tcp1}\n  - "
        "{net: tcp, intf: nix0}\n"
        "peer: [{primary nid: 10.0.0.2@tcp, peer ni: [{nid: 10.0.1.3@tcp1}]}]\nretry_count: 4\n"
    )
    plan = ["plan", "--import", "--socket", str(node.path), str(file)]
    assert main(plan) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "~ peer 10.0.0.2@tcp: NIDs 10.0.0.2@tcp 10.0.1.2@tcp1 -> 10.0.0.2@tcp 10.0.1.3@tcp1",
        "~ setting retry_count: value 2 -> 4",
        lines[2],
    ]
    assert lines[2].startswith("+ net tcp1 NI 127.0.0.8@tcp1: ")
    assert [line[:40] for line in lines[3:]] == [
        "! line 2: 127.0.0.9@tcp is configured al",
        "! line 4: no interface is named 'nix0': ",
    ]
    assert ask("export", "--backup").out == before
    assert ask("import", str(file)).code != 0  # and now it is so
    assert main(["plan", "--import", "--json", "--socket", str(node.path), str(file)]) == 3
    assert json.loads(capsys.readouterr().out)["changes"] == []
    file.write_text("retry_count: 4\n")
    assert main(plan) == 0
    file.write_text("retry_count: 5\n")
    assert main(plan) == 1
    file.write_text("net: [{net: tcp1}]\n")
    capsys.readouterr()
    assert main(["plan", "--del", *plan[2:]]) == 1
    assert capsys.readouterr().out.startswith("- net tcp1 NI 127.0.0.8@tcp1")
    assert main(["plan", "--socket", str(tmp_path / "none"), str(file)]) == 2

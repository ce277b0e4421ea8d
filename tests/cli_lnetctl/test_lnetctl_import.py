"""`lnetctl import` and start-up by module parameters, with processes and real interfaces."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.daemon import Daemon, Done, lnetctl
from support.shared import shared_path
from support.transcripts import Step, read_steps
from support.vma import VmA, documents, keys
from ulnet.cli.ulnet import main as ulnet


def nids(host: VmA) -> list[str]:
    shown = yaml.safe_load(host("net", "show").out)
    return [ni["nid"] for net in shown["net"] for ni in net["local NI(s)"]][1:]


def the_peer(document: Any) -> Any:
    return [peer for peer in document["peer"] if peer["primary nid"] == "192.168.110.77@tcp"]


# What the real tool gets wrong, and what it prints twice: see docs/compatibility.md.
DIFFERENT = (
    "import /share/yaml/bad_syntax.yaml",
    "import --exec /share/yaml/ping.yaml",
    "import --del /share/yaml/udsp.yaml",
    "import --bogus",
)


@pytest.mark.requirement("cfg-065", "cfg-070", "cfg-170", "HLD-import", "tst-005")
def test_the_import_transcript_of_a_real_node_is_replayed(vma: Callable[..., VmA]) -> None:
    folder = shared_path("reference")
    host = vma()
    assert host("net", "add", "--net", "tcp", "--if", "eth0,eth1").code == 0
    assert host("net", "add", "--net", "tcp1", "--if", "eth0").code == 0
    replayed = []
    for step in [step for step in read_steps(folder) if step.file == "18_import"]:
        words = step.command.removeprefix("lnetctl ")
        if ";" in words or words.startswith(("route", "udsp", *DIFFERENT)) or "route" in words:
            continue
        words, _, stdin = words.partition(" < ")
        text = (folder / stdin.removeprefix("/share/")).read_text() if stdin else ""
        done = host(*(word.replace("/share", str(folder)) for word in words.split()), stdin=text)
        replayed.append(step.command)
        compare(step, done)
    assert len(replayed) == 22


def compare(step: Step, done: Done) -> None:
    assert bool(done.code) == bool(step.code), step.command
    real, ours = documents(step.out), documents(done.out)
    if "statistics" in step.out:
        assert keys(ours) == keys(real), step.command
    elif "peer show" in step.command:
        assert [the_peer(one) for one in ours] == [the_peer_without_state(real[0])] * len(ours)
        assert bool(ours) == bool(the_peer(real[0]))
    else:
        assert ours == real, step.command
    told = [item for one in documents(step.err) for verb in one for item in one[verb]]
    ours_told = [item for one in documents(done.err) for verb in one for item in one[verb]]
    # After a refused NI the real tool adds a second error of its own, which says less.
    assert ours_told == told[:1], step.command


def the_peer_without_state(document: Any) -> Any:
    """ulnet judges no aliveness of peers yet: `state` is NA."""
    found = the_peer(document)
    for peer in found:
        for ni in peer["peer ni"]:
            ni["state"] = "NA"
    return found


def test_what_the_real_tool_gets_wrong_is_right_here(vma: Callable[..., VmA], tmp_path: Path) -> None:
    folder = shared_path("reference/yaml")
    host = vma()
    assert host("net", "add", "--net", "tcp", "--if", "eth0").code == 0
    broken = host("import", str(folder / "bad_syntax.yaml"))
    assert (broken.code, "line 3: this is not YAML" in broken.err) == (234, True)
    assert host("import", str(folder / "udsp.yaml")) == (0, "", "")
    assert yaml.safe_load(host("udsp", "show").out)["udsp"][0]["src"] == "tcp"
    assert host("import", "--del", str(folder / "udsp.yaml")) == (0, "", "")
    assert host("udsp", "show").out == ""
    ping = tmp_path / "ping.yaml"
    ping.write_text("ping:\n  - primary nid: 192.168.110.11@tcp\n    timeout: 3000\n")
    assert yaml.safe_load(host("import", "--exec", str(ping)).out)["ping"][0]["primary nid"] == (
        "192.168.110.11@tcp"
    )
    assert host("import", "--bogus").code == 255
    both = host("import", "--add", "--del", str(ping))
    assert (both.code, "exclude each other" in both.err) == (234, True)


@pytest.mark.requirement("HLD-modparams", "HLD-ip2nets")
def test_a_daemon_started_with_module_parameters(vma: Callable[..., VmA], tmp_path: Path) -> None:
    file = tmp_path / "lustre.conf"
    file.write_text(
        'options lnet ip2nets="tcp1(eth9) 10.*.*.*; tcp2 192.168.111.*; tcp2 *.*.*.*" lnet_retry_count=3\n'
        "options ksocklnd peer_credits=16 conns_per_peer=2\n"
    )
    host = vma("--modprobe", str(file), "--unconfigured")
    assert host("net", "show").code != 0
    assert host("lnet", "configure", "--all") == (0, "", "")
    assert nids(host) == ["192.168.111.11@tcp2", "192.168.110.11@tcp2"]  # what matches adds up
    shown = yaml.safe_load(host("net", "show", "-v", "--net", "tcp2").out)["net"][0]["local NI(s)"][0]
    assert (shown["tunables"]["peer_credits"], shown["lnd tunables"]["conns_per_peer"]) == (16, 2)
    assert yaml.safe_load(host("global", "show").out)["global"]["retry_count"] == 3
    words = ("--net", "tcp7", "--ip2net", "tcp(eth0) 192.168.*.*")  # the rule takes precedence
    assert host("net", "add", *words).code == 0
    contradicted = host("net", "add", "--ip2net", "tcp5(eth0) 192.168.111.*")
    assert (contradicted.code, "interface eth0 has 192.168.110.11" in contradicted.err) == (234, True)
    nothing = host("net", "add", "--ip2net", "tcp5 10.*.*.*")
    assert (nothing.code, "no interface of this host matches 10.*.*.*" in nothing.err) == (214, True)
    assert nids(host) == ["192.168.111.11@tcp2", "192.168.110.11@tcp2", "192.168.110.11@tcp"]


@pytest.mark.requirement("HLD-modparams")
def test_the_driver_has_its_module_parameters(vma: Callable[..., VmA], tmp_path: Path) -> None:
    file = tmp_path / "lustre.conf"
    file.write_text("options lnet networks=tcp(eth0) accept_backlog=77\noptions ksocklnd keepalive_idle=9\n")
    host = vma("--modprobe", str(file))
    words = ["ip", "netns", "exec", host.name, "ss", "-Htln", "sport = :988"]
    listening = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert [line.split()[2] for line in listening.splitlines()] == ["77"], listening


@pytest.mark.requirement("HLD-modparams")
def test_module_parameters_hold_without_all(vma: Callable[..., VmA], tmp_path: Path) -> None:
    """Settings, and what drivers give nets; nets, routes and forwarding come by --all."""
    file = tmp_path / "lustre.conf"
    file.write_text(
        "options lnet networks=tcp(eth1) lnet_peer_discovery_disabled=1 alive_router_check_interval=7\n"
        "options lnet forwarding=enabled\noptions ksocklnd peer_credits=16 credits=32\n"
    )
    host = vma("--modprobe", str(file), "--unconfigured")
    for _ in range(2):
        assert host("lnet", "configure") == (0, "", "")
        assert nids(host) == []
        assert yaml.safe_load(host("global", "show").out)["global"]["discovery"] == 0
        assert yaml.safe_load(host("export", "--backup").out)["routing"] == {"alive_router_check_interval": 7}
        assert host("net", "add", "--net", "tcp", "--if", "eth0", "--credits", "64").code == 0
        shown = yaml.safe_load(host("net", "show", "-v", "--net", "tcp").out)["net"][0]["local NI(s)"][0]
        assert (shown["tunables"]["peer_credits"], shown["tunables"]["credits"]) == (16, 64)
        assert host("lnet", "unconfigure").code == 0


@pytest.mark.requirement("HLD-modparams")
@pytest.mark.parametrize(
    ("gateway", "routing", "routes", "forwards"),
    [
        ("192.168.110.12@tcp", "", ["192.168.110.12@tcp"], False),
        ("192.168.110.11@tcp", "", [], True),
        ("192.168.110.11@tcp", "routing: {enable: 0}\n", [], False),
    ],
)
def test_routes_of_a_cluster_are_looked_at_once_the_nets_of_a_file_are_there(
    vma: Callable[..., VmA], tmp_path: Path, gateway: str, routing: str, routes: list[str], forwards: bool
) -> None:
    file = tmp_path / "lustre.conf"
    file.write_text(f"options lnet routes='tcp1 {gateway}'\n")
    nets = tmp_path / "nets.yaml"
    nets.write_text(
        "net:\n  - net type: tcp\n    local NI(s):\n      - interfaces:\n          0: eth0\n" + routing
    )
    host = vma("--modprobe", str(file), "--config", str(nets))
    shown = (yaml.safe_load(host("route", "show").out) or {"route": []})["route"]
    assert [route["gateway"] for route in shown] == routes
    assert bool(yaml.safe_load(host("routing", "show").out)) is forwards


@pytest.mark.requirement("HLD-modparams")
@pytest.mark.parametrize(
    ("networks", "more", "gateways", "forwards"),
    [
        ("tcp(eth0),tcp1(eth1)", "", {"tcp2": ["192.168.110.12@tcp"]}, True),
        ("tcp(eth0),tcp1(eth1)", "forwarding=disabled", {"tcp2": ["192.168.110.12@tcp"]}, False),
        ("tcp1(eth0)", "", {"tcp": ["192.168.112.11@tcp1", "192.168.112.12@tcp1"]}, False),
        (
            "tcp(eth1)",
            "",
            {"tcp1": [f"192.168.110.{n}@tcp" for n in (11, 12)], "tcp2": ["192.168.110.12@tcp"]},
            False,
        ),
    ],
)
def test_all_nodes_of_a_cluster_take_the_same_routes(
    vma: Callable[..., VmA], tmp_path: Path, networks: str, more: str, gateways: object, forwards: bool
) -> None:
    """What is not for this node is passed over; one whose NID is a gateway is a router."""
    file = tmp_path / "lustre.conf"
    file.write_text(
        f"options lnet networks={networks} {more} routes='tcp1 192.168.110.[11-12]@tcp; "
        "tcp 192.168.112.[11-12]@tcp1; tcp2 192.168.110.12@tcp'\n"
    )
    host = vma("--modprobe", str(file))
    found: dict[str, list[str]] = {}
    for route in (yaml.safe_load(host("route", "show").out) or {"route": []})["route"]:
        found.setdefault(route["net"], []).append(route["gateway"])
    assert {net: sorted(gateways) for net, gateways in found.items()} == gateways
    assert bool(yaml.safe_load(host("routing", "show").out)) is forwards


@pytest.mark.requirement("HLD-modparams")
def test_a_daemon_with_networks_and_without_interfaces(vma: Callable[..., VmA]) -> None:
    assert nids(vma("--networks", "tcp, tcp1(eth1,credits=64)")) == [
        "192.168.110.11@tcp",
        "192.168.111.11@tcp1",
    ]


@pytest.mark.requirement("HLD-modparams")
def test_a_daemon_that_is_told_of_no_net_has_tcp_after_configure_all(vma: Callable[..., VmA]) -> None:
    """As in 2.15.8: the first usable interface, ahead of routes; only where it is asked for."""
    host = vma("--routes", "tcp9 192.168.110.12@tcp", "--unconfigured")
    assert host("lnet", "configure") == (0, "", "")
    assert nids(host) == []
    assert host("lnet", "unconfigure").code == 0
    assert host("lnet", "configure", "--all") == (0, "", "")
    assert nids(host) == ["192.168.110.11@tcp"]
    assert yaml.safe_load(host("route", "show").out)["route"][0]["gateway"] == "192.168.110.12@tcp"


def test_a_file_that_is_not_there(daemon: Daemon) -> None:
    done = daemon.lnetctl("import", "/nonexistent.yaml")
    assert done == (
        254,
        "",
        "yaml:\n    - builder:\n          errno: -1\n"
        "          descr: \"cannot open '/nonexistent.yaml': No such file or directory\"\n",
    )


def test_without_a_daemon_one_error_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text("discovery: 1\nretry_count: 2\n")
    done = lnetctl("--socket", str(tmp_path / "none.sock"), "import", str(file))
    assert (done.code, done.err.count("errno")) == (145, 1)


@pytest.mark.requirement("HLD-modparams", "bck-015")
def test_convert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lustre.conf"
    file.write_text(
        'options lnet ip2nets="tcp(eth0) 10.0.0.*; tcp 10.*.*.*" routes="o2ib 10.0.0.1@tcp" accept=all\n'
    )
    assert ulnet(["convert", str(file)]) == 0
    shown = capsys.readouterr()
    assert yaml.safe_load(shown.out) == {
        "ip2nets": [
            {"net-spec": "tcp", "interfaces": {0: "eth0"}, "ip-range": {0: "10.0.0.*"}},
            {"net-spec": "tcp", "ip-range": {0: "10.*.*.*"}},
        ],
        "route": [{"net": "o2ib", "gateway": "10.0.0.1@tcp"}],
    }
    assert "accept: start lnetd with --accept all" in shown.err
    assert "2 rules are for net tcp" in shown.err
    assert ulnet(["convert", "--networks", "tcp9(eth0)"]) == 0
    assert "net type: tcp9" in capsys.readouterr().out
    old = tmp_path / "old.yaml"
    old.write_text("peers:\n  - nids: {0: 10.0.0.2@tcp}\nnet:\n  - net: tcp\n    intf: eth0\n")
    assert ulnet(["convert", str(old)]) == 0
    assert list(yaml.safe_load(capsys.readouterr().out)) == ["net", "peers"]
    assert ulnet(["convert", "--networks", "tcp(("]) == 2
    assert "a bracket is not closed" in capsys.readouterr().err
    old.write_text("nets:\n")
    assert ulnet(["convert", str(old)]) == 2
    assert "did you mean 'net'?" in capsys.readouterr().err
    assert ulnet(["convert", str(tmp_path / "none")]) == 2

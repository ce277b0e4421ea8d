"""`ulnet fleet`: what no node sees alone, from what many show; and on real nodes, with all of it broken."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from observe.conftest import Answers, Tool
from support.daemon import PATIENCE, Done, environment
from support.transcripts import read_steps
from ulnet.observe.equals import equals
from ulnet.observe.fabricwide import Fabric, names, paths
from ulnet.observe.fleet import FleetError, Member, Poll, read_fleet
from ulnet.observe.live import Rates
from ulnet.observe.snapshot import Snapshot
from ulnet.observe.source import FileSource, SocketSource
from ulnet.observe.tool import ToolSource
from watch import RATE, fabric
from watch import Fabric as Watched


def node(
    name: str,
    *nids: str,
    peers: dict[str, list[str]] | None = None,
    routes: dict[str, str] | None = None,
    routing: int = 0,
    settings: dict[str, Any] | None = None,
    rates: dict[str, Rates] | None = None,
    mtus: dict[str, int] | None = None,
    sick: tuple[str, ...] = (),
    multi_rail: bool = True,
    **more: Any,
) -> Member:
    """A node with these NIs, peers by primary NID, and gateways by net; `sick` peer NIs have health 500."""
    nets: dict[str, list[dict[str, Any]]] = {}
    for at, nid in enumerate(nids):
        ni = {"nid": nid, "status": "up", "interfaces": {0: f"eth{at}"}, **more}
        nets.setdefault(nid.rpartition("@")[2], []).append(ni)
    parts = {
        "net": {"net": [{"net type": net, "local NI(s)": nis} for net, nis in nets.items()]},
        "peer": {
            "peer": [
                {
                    "primary nid": primary,
                    "Multi-Rail": multi_rail,
                    "peer ni": [
                        {"nid": nid, "health stats": {"health value": 500 if nid in sick else 1000}}
                        for nid in some
                    ],
                }
                for primary, some in (peers or {}).items()
            ]
        },
        "route": {"route": [{"net": net, "gateway": nid} for net, nid in (routes or {}).items()]},
        "routing": {"routing": [{"cpt[0]": {}}, {"enable": routing}]},
        "settings": {"global": {"discovery": 1, **(settings or {})}},
    }
    return Member(name, Snapshot(name, parts), rates or {}, mtus or {})


def said(*members: Member) -> list[str]:
    whole = Fabric(members)
    return [f"{one.level}: {names(one.where)}: {one.text}" for one in (*paths(whole), *equals(whole))]


A0, A1, B0, B1, C0, C1 = (f"10.{rail}.0.{host}@tcp{rail or ''}" for host in (1, 2, 3) for rail in (0, 1))
WHOLE = {B0: [B0, B1]}


def test_nodes_that_agree_have_nothing_to_tell() -> None:
    assert said(node("a", A0, A1, peers=WHOLE), node("b", B0, B1, peers={A0: [A0, A1]})) == []
    itself = {A0: [A0], **WHOLE}  # as kernel nodes list themselves
    assert said(node("a", A0, A1, peers=itself), node("b", B0, B1)) == []


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        (
            {"peers": {B0: [B0]}, "multi_rail": False},
            {},
            f"1 of 2 rails of b are known, {B1} not: it was not discovered: `lnetctl discover {B0}`",
        ),
        (
            {"peers": {B0: [B0]}},
            {},
            f"1 of 2 rails of b are known, {B1} not: it had fewer when it was asked, or was configured with "
            f"fewer: `lnetctl discover --force {B0}`",
        ),
        (
            {"peers": {B0: [B0], B1: [B1]}, "multi_rail": False},
            {"settings": {"discovery": 0}},
            f"b is taken for 2 peers ({B0} and {B1}), each with some rails: discovery is off on b "
            "(`lnetctl set discovery 1` there)",
        ),
        (
            {"peers": {B0: [B0, B1, C1]}},
            {},
            f"{C1} is taken for b, which has no such NID now: `lnetctl discover --force {B0}`",
        ),
    ],
)
def test_what_one_knows_of_another(a: dict[str, Any], b: dict[str, Any], text: str) -> None:
    assert f"warning: a: {text}" in said(node("a", A0, A1, **a), node("b", B0, B1, **b))


def test_rails_on_nets_that_a_node_does_not_reach_are_not_missed() -> None:
    far = "10.9.0.2@o2ib"
    assert said(node("a", A0, peers={B0: [B0]}), node("b", B0, far)) == []
    by_route = node("a", A0, peers={B0: [B0]}, routes={"o2ib": "10.0.0.9@tcp"})
    assert [line for line in said(by_route, node("b", B0, far)) if far in line] != []


def test_many_nodes_that_say_the_same_are_one_line() -> None:
    some = [node(f"c{at}", f"10.0.1.{at}@tcp", f"10.1.1.{at}@tcp1", peers={B0: [B0]}) for at in range(9)]
    (line,) = said(node("b", B0, B1), *some)
    assert line.startswith("warning: c0, c1, c2 and 6 more: 1 of 2 rails of b are known")


def test_nids_that_are_there_twice_and_nodes_that_are_silent() -> None:
    silent = Member("c", Snapshot("c", {}, {"net": "no answer"}))
    assert said(node("a", A0, A1), node("b", B0, A1), silent) == [
        "error: c: tells nothing: no answer",
        f"error: a and b: all have {A1}: messages to it reach one of them",
    ]
    assert said(node("a", A0), node("b"), node("c")) == [
        f"warning: {name}: has no NI: none leads to it (`lnetctl net add`)" for name in "bc"
    ]
    assert said(node("a", A0), node("b", A0)) == [
        f"warning: a and b: the same NIDs ({A0}): is one node named twice?"
    ]


FAR, G1, G2 = "10.9.0.7@o2ib", ("10.0.0.8@tcp", "10.9.0.8@o2ib"), ("10.0.0.9@tcp", "10.9.0.9@o2ib")


def test_routes_there_and_none_back() -> None:
    gateway = node("g1", *G1, routing=1)
    there = node("a", A0, routes={"o2ib": G1[0]})
    assert said(there, gateway, node("far", FAR)) == [
        "error: a: far on o2ib by g1: no route leads back to tcp, no answer comes"
    ]
    assert said(there, gateway, node("far", FAR, routes={"tcp": G1[1]})) == []


def test_routes_back_by_others() -> None:
    some = [node(name, *nids, routing=1) for name, nids in (("g1", G1), ("g2", G2))]
    there, back = node("a", A0, routes={"o2ib": G1[0]}), node("far", FAR, routes={"tcp": G2[1]})
    assert said(there, back, *some) == ["warning: a: far on o2ib by g1, but back by g2"]
    more = node("z", A0, routes={"o2ib": G1[0]})  # the one with more ways is told of, whatever its name
    other = node("far", FAR)
    two = [{"net": "tcp", "gateway": nid} for nid in (G1[1], G2[1])]
    other.snapshot.parts["route"]["route"] = two
    assert said(more, other, *some) == ["warning: far: z on tcp by g1 and g2, but back by g1"]
    other = node("zfar", FAR)
    other.snapshot.parts["route"]["route"] = two
    assert said(there, other, *some) == ["warning: zfar: a on tcp by g1 and g2, but back by g1"]
    known = {G1[0]: list(G1)}  # gateways that are not asked are known by their NIDs
    there = node("a", A0, routes={"o2ib": G1[0]}, peers=known)
    assert said(there, node("far", FAR, routes={"tcp": G1[1]})) == []


def test_gateways_that_lead_nowhere() -> None:
    users = [node(name, nid, routes={"o2ib": G1[0]}) for name, nid in (("a", A0), ("b", B0))]
    assert said(*users, node("g1", *G1)) == [
        "error: a and b: the route to o2ib leads to g1, which does not route (`lnetctl set routing 1` there)"
    ]
    beyond = node("g1", G1[0], "10.8.0.1@tcp8", routing=1, routes={"o2ib": "10.8.0.2@tcp8"})
    assert said(*users, beyond) == []  # by another gateway
    assert said(*users, node("g1", G1[0], routing=1)) == [
        "error: a and b: the route to o2ib leads to g1, which has no NI on o2ib and no route to it"
    ]


def test_settings_tunables_and_mtus_that_differ() -> None:
    odd: dict[str, Any] = {"tunables": {"peer_credits": 32, "credits": 256}}
    usual: dict[str, Any] = {"tunables": {"peer_credits": 8, "credits": 256}, "settings": {"retry_count": 2}}
    lines = said(
        node("a", A0, **usual, mtus={"eth0": 9000}),
        node("b", B0, **usual, mtus={"eth0": 9000}),
        node("c", C0, **odd, settings={"retry_count": 5, "discovery": 0}, mtus={"eth0": 1500, "lo": 65536}),
    )
    assert [line.partition(": ")[2] for line in lines if line.startswith("warning")] == [
        "c: discovery is 1 on a and b, 0 on c: rails of nodes where it is 0 are found by none, and these "
        "find none",
        "c: net tcp: peer_credits is 8 on a and b, 32 on c: the side with fewer holds the other up; o2iblnd "
        "takes the lesser, or refuses",
        "c: net tcp: MTU is 9000 on a (eth0) and b (eth0), 1500 on c (eth0): packets of the greater size get "
        "lost between them",
    ]
    assert "note: c: retry_count is 2 on a and b, 5 on c" in lines


def test_whose_side_a_fault_is_on() -> None:
    """One rail that most see sick; one node that sees sick what others see well."""
    all_ = {"b": B0, "c": C0, "d": "10.0.0.4@tcp"}

    def seen(name: str, *sick: str) -> Member:
        return node(name, all_.get(name, A0), peers={nid: [nid] for nid in all_.values()}, sick=sick)

    (line,) = said(seen("a", C0), seen("b", C0), seen("c"), seen("d"))
    assert line == (
        f"warning: c: {C0} is not at full health (500 at least) for a and b, 2 of 3 nodes that know it: "
        "the fault is on its side (its link, cable, switch port)"
    )
    (line,) = said(seen("a", *all_.values()), seen("b"), seen("c"), seen("d"))
    assert line == (
        f"warning: a: sees {names(all_.values())} not at full health, which others see well: "
        "the fault is on its own side (its rails on tcp)"
    )
    assert said(seen("a", C0), seen("b"), seen("c"), seen("d")) == []  # one sees it: `ulnet health` tells
    assert said(seen("a", C0), node("b", B0), node("c", C0)) == []  # and no other knows it
    lines = said(seen("a", *all_.values()), seen("b", C0, all_["d"]), seen("c", all_["d"]), seen("d"))
    assert [line[:20] for line in lines] == ["warning: c: 10.0.0.3", "warning: d: 10.0.0.4"]  # not a's side


def busy(messages: float) -> Rates:
    return Rates(messages, messages)


def test_one_slow_rail_among_those_that_take_turns() -> None:
    """Kernel nodes: by messages, while the node is busy."""
    odd, even = {A0: busy(50), A1: busy(20)}, {B0: busy(50), B1: busy(50)}
    assert said(node("a", A0, A1, rates=odd), node("b", B0, B1, rates=even)) == [
        f"warning: a: {A1} carries 40 messages/s beside 100 of its equal"
    ]
    both = [node("a", A0, A1, rates=odd), node("b", B0, B1, rates={B0: busy(50), B1: busy(20)})]
    assert said(*both) == [
        "warning: a and b: net tcp1 is much slower than its equals on most nodes: look at its switch"
    ]
    assert said(node("a", A0, A1, rates={A0: busy(4), A1: busy(0)})) == []  # not busy
    ranked = node("a", A0, A1, rates=odd)
    ranked.snapshot.local_nis()[1][1]["udsp info"] = {"nid priority": 1}  # type: ignore[index]
    assert said(ranked) == []
    assert said(node("a", A0, A1, rates=odd, load={"waiting": 0})) == []  # ulnet's choose by what is measured


def test_one_slow_rail_by_the_rates_that_paths_have() -> None:
    """Ulnet's nodes: from all that are at its other end; the ends of its paths are not slow with others."""
    hosts = {name: (f"10.0.0.{at}@tcp", f"10.1.0.{at}@tcp1") for at, name in enumerate("abcd", 1)}

    def measured(name: str, slow: set[str], rate: int = 8) -> Member:
        peers = {nids[0]: list(nids) for other, nids in hosts.items() if other != name}
        found = node(name, *hosts[name], peers=peers)
        for _, ni in found.snapshot.peer_nis():
            (local,) = (one for one in hosts[name] if one.partition("@")[2] == ni["nid"].partition("@")[2])
            way = rate if slow & {local, ni["nid"]} else 25
            ni["load"] = {"paths": {local: {"rate": way * 10**6}, "0@lo": {"rate": 0}}}  # type: ignore[index]
        return found

    assert said(*(measured(name, {hosts["c"][1]}) for name in hosts)) == [
        f"warning: c: paths over {hosts['c'][1]} carry 8 MB/s beside 25 MB/s of others of its kind"
    ]
    assert said(*(measured(name, {nids[1] for nids in hosts.values()}) for name in hosts)) == [
        "warning: a, b, c and d: net tcp1 is much slower than its equals on most nodes: look at its switch"
    ]
    assert said(*(measured(name, {hosts["c"][1]}, 9) for name in hosts)) == []


def test_one_rail_whose_answers_are_late() -> None:
    def late(name: str, nid: str, milliseconds: int, samples: int = 500) -> Member:
        counts = {"get_rtt_avg_nsec": milliseconds * 10**6, "get_rtt_samples": samples}
        return node(name, nid, statistics=counts)

    some = [late("a", A0, 4), late("b", B0, 5)]
    assert said(*some, late("c", C0, 16)) == [
        f"warning: c: answers take 16 ms over {C0}, 5 ms over others of its kind"
    ]
    assert said(*some, late("c", C0, 15)) == said(*some, late("c", C0, 60, samples=99)) == []


@pytest.mark.parametrize("odd", [7, "x", [], [7], {"peer": 7}, {"nid": []}])
def test_documents_of_another_shape_are_no_finding(odd: Any) -> None:
    parts = {"net": {"net": [{"net type": "tcp", "local NI(s)": [{"nid": A0, "tunables": odd}]}]}}
    for name in ("peer", "route", "routing", "settings"):
        key = {"settings": "global"}.get(name, name)
        parts[name] = {key: odd}
    assert isinstance(said(Member("a", Snapshot("a", parts)), node("b", B0)), list)


def test_a_fleet_is_read_from_a_file() -> None:
    found = read_fleet("nodes:\n  oss1: ssh oss1 lnetctl\n  2: {socket: /run/x}\n  saved: {file: a.yaml}\n")
    assert [(name, type(source), source.name) for name, source, _ in found] == [
        ("oss1", ToolSource, "ssh oss1 lnetctl"),
        ("2", SocketSource, "/run/x"),
        ("saved", FileSource, "a.yaml"),
    ]
    assert [node.host for node in found] == [("ssh", "oss1"), None, None]
    away = read_fleet("nodes:\n  a: {socket: s, host: ip netns exec left}\n  b: {socket: s, host: ''}\n")
    assert [node.host for node in away] == [("ip", "netns", "exec", "left"), ()]
    assert read_fleet("nodes:\n  a: {tool: ssh x lctl}\n")[0].host is None
    assert read_fleet("nodes:\n  a: {tool: sudo -n lnetctl}\n")[0].source.reach == "sudo -n lnetctl"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it names no nodes"),
        ("nodes: {}\n", "it names no nodes"),
        ("nodes:\n  a: {tool: x, socket: y}\n", "node a: how is it asked"),
        ("nodes:\n  a: {ssh: x}\n", "node a: how is it asked"),
        ("nodes:\n  a: {host: x}\n", "node a: how is it asked"),
        ("nodes:\n  a: {socket: s, host: 7}\n", "node a: 'host' is a text"),
        ("nodes:\n  a: {socket: s, host: '\"'}\n", "node a: No closing quotation"),
        ("nodes:\n  a: 7\n", "node a: how is it asked"),
        ("nodes:\n  a: {socket: 7}\n", "node a: 'socket' is a text"),
        ("nodes:\n  a: {tool: '\"'}\n", "node a: No closing quotation"),
        ("nodes: [\n", "no YAML in line"),
        ("nodes:\n" + "".join(f"  n{n}: x\n" for n in range(4097)), "4096 at most"),
    ],
)
def test_fleets_that_are_none(text: str, why: str) -> None:
    with pytest.raises(FleetError, match=why):
        read_fleet(text)


def test_kernel_nodes_of_the_transcripts(shared: Path, make_tool: Callable[[Answers], Tool]) -> None:
    """Two of release 2.18, one of 2.15: but defaults, all is equal; then one knows half of another."""
    members = []
    for release, host in (("", "vmA"), ("", "vmB"), ("release-2.15.8", "vmC")):
        answers: dict[str, tuple[str, str, object]] = {}
        for step in read_steps(shared / "reference" / release, ["12_show", "21_after_traffic"]):
            if step.host == host and step.command.startswith("lnetctl "):
                answers[step.command.removeprefix("lnetctl ")] = (step.out, step.err, step.code)
        members.append(Member(host, ToolSource(make_tool(answers).command).read(60)))
    lines = said(*members)
    assert lines
    assert [line for line in lines if not line.startswith("note: ")] == []
    assert "note: vmA and vmC: transaction_timeout is 150 on vmA, 50 on vmC" in lines
    shown = members[2].snapshot.parts["peer"]["peer"]
    (far,) = [peer for peer in shown if peer["primary nid"] == "192.168.110.12@tcp"]
    del far["peer ni"][1:]
    assert [line for line in said(*members) if not line.startswith("note: ")] == [
        "warning: vmC: 1 of 2 rails of vmB are known, 192.168.111.12@tcp not: it had fewer when it was "
        "asked, or was configured with fewer: `lnetctl discover --force 192.168.110.12@tcp`"
    ]


# The command ----------------------------------------------------------------------------------------------


def ulnet(*words: str, **more: str) -> Done:
    done = subprocess.run(
        [sys.executable, "-m", "ulnet", *words],
        env=environment(**more), capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


def told_until(words: tuple[str, ...], *texts: str) -> Done:
    """Ask until all of it is told."""
    give_up = time.monotonic() + PATIENCE
    while True:
        done = ulnet(*words)
        if all(text in done.out for text in texts):
            return done
        assert time.monotonic() < give_up, (texts, done)


@pytest.fixture
def two_nodes(namespaces_work: None) -> Iterator[Watched]:
    with fabric() as found:
        yield found


def test_two_hosts_with_all_that_can_be_wrong_between_them(two_nodes: Watched) -> None:
    """Traffic over two rails; then discovery goes off on one side, a rail gets slow, an MTU shrinks."""
    left, right = two_nodes.network.left, two_nodes.network.right
    nodes = {
        name: {"socket": str(two_nodes.socket(name)), "host": f"ip netns exec {space}"}
        for name, space in (("left", left), ("right", right))
    }
    two_nodes.nodes.write_text(yaml.safe_dump({"nodes": nodes}))
    two_nodes.begin_traffic()
    words = ("fleet", str(two_nodes.nodes), "--between", "1")
    well = told_until(words, "nothing found that no node sees alone")
    assert well.code == 0
    assert well.out.startswith("left   OK: 2 NIs up on 2 nets")
    for space in (left, right):
        shape = RATE.replace("200mbit", "20mbit").split()
        slow = ["tc", "-n", space, "qdisc", "replace", "dev", "rail1", "root", "tbf", *shape]
        subprocess.run(slow, check=True)
    text = "left and right: net tcp1 is much slower than its equals on most nodes"
    assert told_until(words, text).code == 1
    subprocess.run(["ip", "-n", left, "link", "set", "rail0", "mtu", "1400"], check=True)
    two_nodes.lnetctl("left", "set", "discovery", "0")
    done = told_until(
        words,
        "left and right: net tcp: MTU is 1400 on left (rail0), 1500 on right (rail0)",
        "left and right: discovery is 0 on left, 1 on right",
        "right is taken for 2 peers",
        "left is taken for 2 peers",
    )
    assert done.code == 1
    two_nodes.daemons["right"].kill()
    two_nodes.daemons["right"].wait()
    found = json.loads(ulnet(*words, "--json").out)
    assert [one["level"] for one in found["nodes"]] != ["OK", "OK"]
    (silent,) = [one for one in found["findings"] if one["level"] == "error"]
    assert silent["where"] == ["right"]
    assert "no lnetd answers" in silent["text"]


def test_a_node_that_hangs_holds_up_nobody(make_tool: Callable[[Answers], Tool], tmp_path: Path) -> None:
    tool = make_tool({"*": ("", "", "hangs")})
    document = {"net": [{"net type": "tcp", "local NI(s)": [{"nid": A0, "status": "up"}]}]}
    (tmp_path / "saved.yaml").write_text(yaml.safe_dump(document))
    nodes = {"nodes": {"hung": tool.command, "saved": {"file": str(tmp_path / "saved.yaml")}}}
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump(nodes))
    done = ulnet("fleet", str(tmp_path / "nodes.yaml"), "--timeout", "1", "--between", "0.1")
    assert done.code == 1
    assert "saved  OK: 1 NI up on 1 net" in done.out
    assert "error: hung: tells nothing: " in done.out
    assert "hung: it is tried again in" in done.out or "no end in" in done.out


def test_again_and_again_what_is_new_and_what_is_over(tmp_path: Path) -> None:
    def show(name: str, nid: str, credits: int) -> None:
        ni = {"nid": nid, "status": "up", "tunables": {"peer_credits": credits}}
        document = {"net": [{"net type": "tcp", "local NI(s)": [ni]}]}
        (tmp_path / f"{name}.new").write_text(yaml.safe_dump(document))
        os.replace(tmp_path / f"{name}.new", tmp_path / f"{name}.yaml")

    for name, nid in (("a", A0), ("b", B0), ("c", C0)):
        show(name, nid, 8)
    nodes = {"nodes": {name: {"file": str(tmp_path / f"{name}.yaml")} for name in "abc"}}
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump(nodes))
    words = ["fleet", str(tmp_path / "nodes.yaml"), "--between", "0.1", "--every", "0.1"]
    command = [sys.executable, "-m", "ulnet", *words]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        give_up = threading.Timer(PATIENCE, process.kill)
        give_up.start()
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("nothing found"):
                show("b", B0, 16)
            if line.startswith("new: warning: b: net tcp: peer_credits is 8 on a and c, 16 on b"):
                show("b", B0, 8)
            if line.startswith("over: warning: b: net tcp: peer_credits"):
                break
        process.send_signal(signal.SIGTERM)
        give_up.cancel()
    assert process.returncode == 0  # the last time nothing was wrong


def test_mtus_are_those_of_the_host_and_a_host_that_tells_none_is_no_harm(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("net:\n- net type: tcp\n  local NI(s):\n  - nid: 10.0.0.1@tcp\n")
    where = f"file: {tmp_path / 'a.yaml'}"
    ways = {"a": f"{where}, host: ''", "b": f"{where}, host: 'false'", "c": where}
    nodes = read_fleet("nodes:\n" + "".join(f"  {name}: {{{way}}}\n" for name, way in ways.items()))
    poll = Poll(nodes)
    try:
        here, none, unknown = poll.read(10)
    finally:
        poll.close()
    assert here.mtus["lo"] == int(Path("/sys/class/net/lo/mtu").read_text())
    assert none.mtus == unknown.mtus == {}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["/no/such/file"], "cannot be read"),
        (["/dev/null"], "it names no nodes"),
        (["/dev/null", "--between", "0"], "above 0"),
        ([], "required"),
    ],
)
def test_words_that_make_no_fleet(words: list[str], why: str) -> None:
    done = ulnet("fleet", *words)
    assert (done.code, done.out) == (2, "")
    assert why in done.err

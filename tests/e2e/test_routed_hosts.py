"""Client, router and server in namespaces, two rails on each side: lnetd, lnetctl, the bytes on the wire."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.netns import Cluster, Host, stop

LNETD = [sys.executable, "-m", "ulnet.cli.lnetd"]
LNETCTL = [sys.executable, "-m", "ulnet.cli.lnetctl"]
ULNET = [sys.executable, "-m", "ulnet"]
PATIENCE = 60.0


class Daemon:
    """One lnetd in one host."""

    def __init__(self, host: Host, socket: Path) -> None:
        self.host = host
        self.socket = socket

    def __call__(self, *words: str) -> str:
        return self.host.run(*LNETCTL, "--socket", self.socket, *words).stdout

    def show(self, *words: str) -> dict[str, Any]:
        shown = yaml.safe_load(self(*words)) or {}
        assert isinstance(shown, dict)
        return shown

    def pings(self, nid: str) -> bool:
        words: list[str | Path] = [*LNETCTL, "--socket", self.socket, "ping", "--timeout", "2", nid]
        return not self.host.run(*words, check=False).returncode

    def is_up(self, net: str) -> bool:
        """Whether it shows its NI of that net as up."""
        (shown,) = self.show("net", "show", "--net", net)["net"]
        return bool(shown["local NI(s)"][0]["status"] == "up")

    def wait_for(self, condition: Callable[[], bool]) -> None:
        give_up = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < give_up, self("export")
            time.sleep(0.1)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    with ExitStack() as stack:

        def start(host: Host, file: str) -> Daemon:
            socket = tmp_path / f"{host.number}.sock"
            config = tmp_path / f"{host.number}.yaml"
            config.write_text(file)
            process = host.start(*LNETD, "--socket", socket, "--config", config)
            stack.callback(stop, process)
            daemon = Daemon(host, socket)
            give_up = time.monotonic() + PATIENCE
            while not socket.exists():
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < give_up
                time.sleep(0.05)
            return daemon

        yield start


def nets(*interfaces: tuple[str, str]) -> str:
    lines = [
        f"    - net type: {net}\n      local NI(s):\n        - interfaces:\n              0: {interface}\n"
        for net, interface in interfaces
    ]
    return "net:\n" + "".join(lines)


# After the sum of both a router is announced, and tells that a net is down which no check came from.
PACE = "routing:\n    alive_router_check_interval: 1\n    router_ping_timeout: 3\n"


def routes(*ways: tuple[str, str]) -> str:
    return "route:\n" + "".join(f"    - net: {net}\n      gateway: {gateway}\n" for net, gateway in ways)


def states_are(daemon: Daemon, state: str) -> bool:
    return {one["state"] for one in daemon.show("route", "show", "-v")["route"]} == {state}


@pytest.mark.requirement("RTR", "tst-005")
def test_a_router_between_two_hosts_with_two_rails_each(
    make_cluster: Callable[..., Cluster], start: Callable[..., Daemon], tmp_path: Path
) -> None:
    """The client is on rails 0 and 1, the server on 2 and 3, the router on all four."""
    cluster = make_cluster(hosts=3, rails=4)
    client_host, router_host, server_host = cluster.hosts
    for host, foreign in ((client_host, (2, 3)), (server_host, (0, 1))):
        for rail in foreign:
            host.set_link(rail, up=False)
    near, far = ("tcp", "tcp1"), ("tcp2", "tcp3")
    all_nets = [(net, f"rail{rail}") for rail, net in enumerate((*near, *far))]
    router = start(router_host, nets(*all_nets) + PACE + "    enable: 1\n")
    client = start(
        client_host, nets(*all_nets[:2]) + PACE + routes(*((net, router_host.nid(0, "tcp")) for net in far))
    )
    server = start(
        server_host, nets(*all_nets[2:]) + PACE + routes(*((net, router_host.nid(2, "tcp2")) for net in near))
    )
    router.wait_for(partial(routes_for_others, router))  # routes count as up until their gateway was asked
    router("set", "router_ping_timeout", "60")
    for end in (client, server):
        end.wait_for(partial(states_are, end, "up"))
    target = server_host.nid(2, "tcp2")
    captures = [tmp_path / f"rail{rail}.pcap" for rail in range(4)]
    with ExitStack() as stack:
        for rail, path in enumerate(captures):
            stack.enter_context(router_host.capture(path, f"rail{rail}", "port 988"))
        answer = client.show("ping", target)["ping"][0]
        assert {one["nid"] for one in answer["peer_ni"]} == {target, server_host.nid(3, "tcp3")}
        for _ in range(5):
            client("discover", "--force", target)
    peer = next(one for one in client.show("peer", "show")["peer"] if one["primary nid"] == target)
    assert peer["Multi-Rail"] is True
    assert client("explain", "--to", target).splitlines()[0].count(" -> ") == 2
    statistics = router.show("stats", "show")["statistics"]
    assert statistics["route_count"] >= 12
    assert statistics["drop_count"] == 0
    both = (client_host, server_host)
    assert passing(captures[:2], both) == passing(captures[2:], both) != Counter()
    shown = router.show("routing", "show")
    assert shown["routing"][-1] == {"enable": 1}
    assert all(
        pool["credits"] == pool["nbuffers"]
        for cpt in shown["routing"][:-1]
        for pools in cpt.values()
        for pool in pools.values()
    )
    router("set", "routing", "0")
    client.wait_for(partial(states_are, client, "down"))


def lose_cable(cluster: Cluster, client: Daemon, back: bool) -> None:
    cluster.set_cable(client.host, 0, plugged=back)


def lose_path(cluster: Cluster, client: Daemon, back: bool) -> None:
    cluster.set_path(client.host, 0, through=back)


def lose_link(cluster: Cluster, client: Daemon, back: bool) -> None:
    client.host.set_link(0, up=back)


def lose_ni(cluster: Cluster, client: Daemon, back: bool) -> None:
    if back:
        client("net", "add", "--net", "tcp", "--if", "rail0")
    else:
        client("net", "del", "--net", "tcp")


@pytest.mark.requirement("RTR")
@pytest.mark.parametrize(
    "change",
    [
        lose_path,
        lose_ni,
        pytest.param(lose_cable, marks=pytest.mark.long),
        pytest.param(lose_link, marks=pytest.mark.long),
    ],
)
def test_a_net_whose_only_client_loses_its_ni_is_served_again_when_it_is_back(
    make_cluster: Callable[..., Cluster],
    start: Callable[..., Daemon],
    change: Callable[[Cluster, Daemon, bool], None],
) -> None:
    """Nobody checks the routers meanwhile, so they call that net down: not for longer than it is alone."""
    cluster = make_cluster(hosts=4, rails=2)
    client_host, server_host, *router_hosts = cluster.hosts
    both = nets(("tcp", "rail0"), ("tcp1", "rail1"))
    routers = [start(host, both + PACE + "    enable: 1\n") for host in router_hosts]
    client = start(
        client_host,
        nets(("tcp", "rail0")) + PACE + routes(*(("tcp1", router.host.nid(0)) for router in routers)),
    )
    server = start(
        server_host,
        nets(("tcp1", "rail1")) + PACE + routes(*(("tcp", router.host.nid(1, "tcp1")) for router in routers)),
    )

    def served() -> bool:
        if not all(states_are(end, "up") for end in (client, server)):
            return False
        ways = ((client, server_host.nid(1, "tcp1")), (server, client_host.nid(0)))
        return all(end.pings(nid) for end, nid in ways) and all(router.is_up("tcp") for router in routers)

    client.wait_for(served)
    change(cluster, client, False)
    client.wait_for(lambda: not any(router.is_up("tcp") for router in routers))
    server.wait_for(partial(states_are, server, "down"))
    assert not server.pings(client_host.nid(0))
    assert not client.pings(server_host.nid(1, "tcp1"))
    change(cluster, client, True)
    client.wait_for(served)


def routes_for_others(router: Daemon) -> bool:
    """Whether it has started, and tells so."""
    shown = router.show("routing", "show")
    return bool(shown["routing"][-1] == {"enable": 1})


def passing(captures: list[Path], ends: tuple[Host, Host]) -> Counter[str]:
    """What the decoder sees of messages between two hosts: all of their headers."""
    numbers = {f".0.{host.number}@" for host in ends}
    seen: Counter[str] = Counter()
    for path in captures:
        for line in ends[0].run(*ULNET, "decode", "--json", path).stdout.splitlines():
            event = json.loads(line)
            if event["event"] != "message":
                continue
            nids = (event["src_nid"], event["dest_nid"])
            if all(any(number in nid for nid in nids) for number in numbers):
                kept = {key: value for key, value in event.items() if key not in ("time", "src", "dst")}
                seen[json.dumps(kept, sort_keys=True)] += 1
    return seen

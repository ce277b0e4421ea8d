"""Metrics over HTTP: of real daemons, judged by promtool, scraped by a real Prometheus."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from observe.conftest import Answers, Tool
from support.daemon import PATIENCE, Daemon, environment
from support.netns import Cluster, Host
from support.ports import free_port
from ulnet.observe.exporter import Exporter, NodeCollector
from ulnet.observe.snapshot import Snapshot
from ulnet.observe.tool import ToolSource

RULES = Path(__file__).parents[2] / "packaging" / "prometheus" / "lnet.rules.yml"
ULNET = [sys.executable, "-m", "ulnet"]


def wait(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    give_up = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up, what()
        time.sleep(0.1)


def get(port: int, path: str = "/metrics", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request(
            "GET", path, headers={name.replace("_", "-"): text for name, text in headers.items()}
        )
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def values(text: str, name: str) -> dict[str, float]:
    """By labels as they are printed."""
    found = {}
    for line in text.splitlines():
        key, _, value = line.rpartition(" ")
        if key == name or key.startswith(name + "{"):
            found[key[len(name) :]] = float(value)
    return found


class Slow:
    """A source that answers when it is let."""

    name = reach = "slow"

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.go = threading.Event()

    def read(self, timeout: float) -> Snapshot:
        self.asked.append(timeout)
        self.go.wait(min(timeout, PATIENCE))
        return Snapshot(
            "slow", {"net": {}} if self.go.is_set() else {}, {} if self.go.is_set() else {"net": "late"}
        )

    def configuration(self, timeout: float) -> str:
        return ""

    def close(self) -> None:
        pass


@pytest.fixture
def serve() -> Iterator[Callable[[Any], Exporter]]:
    with ExitStack() as stack:

        def begin(source: Any) -> Exporter:
            exporter = Exporter(source, "127.0.0.1", 0).start()
            stack.callback(exporter.close)
            return exporter

        yield begin


@pytest.fixture
def metrics() -> int:
    """The port where the first daemon serves them."""
    return free_port()


@pytest.fixture
def daemons(tmp_path: Path, metrics: int) -> Iterator[list[Daemon]]:
    """Two that know each other and have sent messages; the first serves metrics."""
    port = str(free_port())
    with ExitStack() as stack:
        found = []
        for number in (1, 2):
            words = ("--metrics", f"127.0.0.1:{metrics}") if number == 1 else ()
            daemon = Daemon(tmp_path / f"{number}.sock", "--accept", "all", "--accept-port", port, *words)
            stack.callback(daemon.end)
            assert daemon.lnetctl("net", "add", "--nid", f"127.6.1.{number}@tcp").code == 0
            found.append(daemon)
        assert found[0].lnetctl("discover", "127.6.1.2@tcp").code == 0
        yield found


def test_metrics_of_a_daemon_are_those_of_its_documents(
    daemons: list[Daemon], metrics: int, prometheus_tools: Path
) -> None:
    status, text = get(metrics)
    assert status == 200
    place = next(key for key in values(text, "lnet_ni_up"))
    assert 'nid="127.6.1.1@tcp"' in place
    assert values(text, "lnet_ni_up") == {place: 1}
    shown = json.loads(daemons[0].lnetctl("net", "show", "-v", "4", "--json").out)
    (ni,) = [ni for net in shown["net"] for ni in net["local NI(s)"] if ni["nid"] == "127.6.1.1@tcp"]
    assert values(text, "lnet_ni_send_total") == {place: ni["statistics"]["send_count"]}
    assert values(text, "lnet_peer_ni_health_value") == {'{nid="127.6.1.2@tcp",peer="127.6.1.2@tcp"}': 1000}
    assert values(text, "lnet_peers_multi_rail") == {"": 1}
    sent = values(text, "lnet_ni_messages_total")
    assert sent and sum(sent.values()) > 2
    checked = subprocess.run(
        [prometheus_tools / "promtool", "check", "metrics"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    again = get(metrics, Accept="application/openmetrics-text; version=1.0.0")[1]
    assert again.endswith("# EOF\n")
    assert daemons[0].stop().code == 0


def test_the_command_serves_what_a_tool_shows(make_tool: Callable[[Answers], Tool]) -> None:
    net = "net:\n- net type: tcp\n  local NI(s):\n  - nid: 10.0.0.1@tcp\n    status: down\n"
    tool = make_tool({"net show -v 4": (net, "", 0)})
    command = [*ULNET, "exporter", "--tool", tool.command, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as exporter:
        assert exporter.stdout is not None
        said = exporter.stdout.readline()
        text = get(int(said.rpartition(":")[2].split("/")[0]))[1]
        exporter.send_signal(signal.SIGTERM)
    assert exporter.returncode == 0
    assert said.startswith("metrics of ")
    assert values(text, "lnet_ni_up") == {'{interface="",net="tcp",nid="10.0.0.1@tcp"}': 0}


def test_a_scrape_ends_in_time_though_the_tool_hangs(
    make_tool: Callable[[Answers], Tool], serve: Callable[[Any], Exporter]
) -> None:
    """By what Prometheus says that it waits; the next ones do not start the tool again."""
    tool = make_tool({"*": ("", "", "hangs")})
    exporter = serve(ToolSource(tool.command))
    for _ in range(3):
        text = get(exporter.port, X_Prometheus_Scrape_Timeout_Seconds="1")[1]
        assert values(text, "lnet_up") == {"": 0}
        assert values(text, "lnet_part_missing")['{part="net"}'] == 1
    assert len(tool.asked) == 1


def test_what_is_read_once_serves_all_who_wait() -> None:
    source = Slow()
    collector = NodeCollector(source)
    threads = [threading.Thread(target=collector.within, args=(PATIENCE,)) for _ in range(5)]
    for thread in threads:
        thread.start()
    wait(lambda: bool(source.asked), lambda: "nobody asked")
    source.go.set()
    for thread in threads:
        thread.join()
    assert len(source.asked) <= 2  # those who came before the reading began; the others may share the second


def test_a_reading_that_another_cut_short_is_not_taken() -> None:
    """Before, one who asks with little patience, again and again, spoiled what others got."""
    source = Slow()
    now = 0.0
    collector = NodeCollector(source, clock=lambda: now)
    got: list[float] = []

    def ask() -> None:
        got.append(next(family.samples[0].value for family in collector.within(PATIENCE)))

    patient = threading.Thread(target=ask)

    def read(timeout: float) -> Snapshot:
        nonlocal now
        source.asked.append(timeout)
        if timeout > 1:
            return Snapshot("slow", {"net": {}})
        patient.start()  # it asks before the reading begins, as its clock tells
        wait(lambda: waits.is_set(), lambda: "nobody waits")
        now = 2.0
        return Snapshot("slow", {}, {"net": "late"})

    waits = threading.Event()
    lock = collector._lock

    class Lock:
        def acquire(self, timeout: float) -> bool:
            if timeout > 1:
                waits.set()
            return lock.acquire(timeout=timeout)

        def release(self) -> None:
            lock.release()

    collector._lock = Lock()  # type: ignore[assignment]
    source.read = read  # type: ignore[method-assign]
    collector.within(0.1)
    patient.join(PATIENCE)
    assert got == [1.0]
    assert len(source.asked) == 2


class Clocked(Slow):
    """A source whose readings take what they are told, and are cut short where that is too long."""

    def __init__(self, takes: float) -> None:
        super().__init__()
        self.takes = takes
        self.now = 100.0

    def read(self, timeout: float) -> Snapshot:
        self.asked.append(timeout)
        self.now += min(self.takes, timeout)
        return Snapshot("clocked", {}, {"net": "late"} if self.takes > timeout else {})


@pytest.mark.parametrize(("takes", "serves"), [(0.0, 1.0), (0.01, 1.0), (0.125, 2.5), (1.5, 2.5), (5.0, 1.0)])
def test_a_reading_serves_all_who_come_within_some_time(takes: float, serves: float) -> None:
    """Before: the node was read for each who came after the last reading had begun."""
    source = Clocked(takes)
    collector = NodeCollector(source, clock=lambda: source.now)
    first = collector.within(8.0)
    began = source.now
    for part in (0.0, 0.5, 0.99):
        source.now = began + part * serves
        assert collector.within(8.0) is first
    assert len(source.asked) == 1
    source.now = began + serves
    assert collector.within(8.0) is not first


def test_a_little_more_patience_each_time_is_no_reason_to_read_anew() -> None:
    source = Clocked(1000.0)
    collector = NodeCollector(source, clock=lambda: source.now)
    at = source.now
    for patience in range(100, 1000):
        collector.within(patience / 1000)
        source.now = at
    assert len(source.asked) <= 4


def test_who_waits_no_longer_gets_what_was_read_last() -> None:
    source = Slow()
    collector = NodeCollector(source)
    thread = threading.Thread(target=collector.within, args=(PATIENCE,))
    thread.start()
    wait(lambda: bool(source.asked), lambda: "nobody asked")
    assert collector.within(0.01) == []
    source.go.set()
    thread.join()
    assert next(family.name for family in collector.within(0.01)) == "lnet_up"


@pytest.mark.parametrize("told", ["nan", "-1", "1e999", "soon"])
def test_a_scraper_may_tell_any_patience(serve: Callable[[Any], Exporter], told: str) -> None:
    """Of "nan" the threading module made an error, whose traceback went to the log."""
    source = Slow()
    source.go.set()
    assert get(serve(source).port, X_Prometheus_Scrape_Timeout_Seconds=told)[0] == 200


def test_clients_that_send_nothing_give_way_to_prometheus(
    serve: Callable[[Any], Exporter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: 32 of them held all places for ten seconds, and a scrape got an empty answer."""
    monkeypatch.setattr("ulnet.observe.exporter._PACE", 0.001)
    source = Slow()
    source.go.set()
    exporter = serve(source)
    with ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(socket.create_connection(("127.0.0.1", exporter.port)))
        assert get(exporter.port)[0] == 200
        assert threading.active_count() < 60


def test_of_those_who_wait_the_oldest_of_the_address_with_most_gives_way(
    serve: Callable[[Any], Exporter],
) -> None:
    source = Slow()
    exporter = serve(source)
    with ExitStack() as stack:
        scraper = http.client.HTTPConnection(
            "127.0.0.1", exporter.port, timeout=PATIENCE, source_address=("127.0.0.2", 0)
        )
        stack.callback(scraper.close)
        scraper.request("GET", "/metrics", headers={"X-Prometheus-Scrape-Timeout-Seconds": "60"})
        wait(lambda: bool(source.asked), lambda: "nobody asked")
        many = [
            stack.enter_context(socket.create_connection(("127.0.0.1", exporter.port), timeout=PATIENCE))
            for _ in range(100)
        ]
        for silent in many[:69]:  # 31 have a place beside the scraper
            assert silent.recv(1) == b""
        source.go.set()
        assert scraper.getresponse().status == 200


_GET = b"GET / HTTP/1.0\r\n"


@pytest.mark.parametrize(
    "begin",
    [b"GET /" + b"x" * 20000, _GET + b"X: " + b"x" * 20000, _GET + b"X: %b\r\n" % (b"x" * 300) * 90],
    ids=["line", "header", "headers"],
)
def test_a_long_request_is_refused_before_it_is_whole(serve: Callable[[Any], Exporter], begin: bytes) -> None:
    """Before: 6 MB of headers were read and parsed, whatever they asked for."""
    exporter = serve(Slow())
    with socket.create_connection(("127.0.0.1", exporter.port), timeout=PATIENCE) as client:
        client.sendall(begin)
        assert b" 431 " in client.recv(100).splitlines()[0]


def test_a_request_that_comes_in_pieces(serve: Callable[[Any], Exporter]) -> None:
    exporter = serve(Slow())
    with socket.create_connection(("127.0.0.1", exporter.port), timeout=PATIENCE) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in (_GET[:8], _GET[8:] + b"X: 1", b"\r\n", b"\r\n"):
            client.sendall(piece)
            time.sleep(0.01)
        assert b" 200 " in client.recv(100).splitlines()[0]


def test_clients_have_their_turns_at_a_pace(
    serve: Callable[[Any], Exporter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: as many as came had threads and answers, beside which lnetd's loop had no time."""
    waits: list[float] = []
    monkeypatch.setattr("ulnet.observe.exporter._PACE", 1000.0)
    monkeypatch.setattr("ulnet.observe.exporter.time.sleep", waits.append)
    exporter = serve(Slow())
    for _ in range(18):
        assert get(exporter.port, "/")[0] == 200
    assert [round(each / 1000) for each in waits if each > 100 or each == 0] == [0] * 16 + [1, 2]


def test_other_pages_and_methods(serve: Callable[[Any], Exporter]) -> None:
    source = Slow()
    exporter = serve(source)
    assert get(exporter.port, "/nothing")[0] == 404
    assert "/metrics" in get(exporter.port, "/")[1]
    posted = urllib.request.Request(f"http://127.0.0.1:{exporter.port}/metrics", data=b"x")
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(posted, timeout=PATIENCE)
    assert not source.asked


def test_an_address_that_is_taken(serve: Callable[[Any], Exporter]) -> None:
    exporter = serve(Slow())
    words = [*ULNET, "exporter", "--listen", f"127.0.0.1:{exporter.port}"]
    done = subprocess.run(
        words, env=environment(), capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 1
    assert (
        done.stderr
        == f"ulnet exporter: cannot listen on 127.0.0.1, port {exporter.port}: Address already in use\n"
    )


@pytest.mark.parametrize(
    "words", [["--listen", "7"], ["--listen", "x:99999"], ["--peers", "-1"], ["--tool", ""]]
)
def test_words_that_make_no_exporter(words: list[str]) -> None:
    done = subprocess.run(
        [*ULNET, "exporter", *words],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 2
    assert done.stderr


def test_rules_are_valid_and_do_what_they_say(prometheus_tools: Path, tmp_path: Path) -> None:
    """A rail that goes down and comes back, a net that is gone, as promtool plays them."""
    nid = 'instance="n", job="lnet", net="tcp", nid="1.1.1.1@tcp", interface="eth0"'
    series = [
        {"series": f"lnet_ni_up{{{nid}}}", "values": "1 1 0 0 0 0 1 1"},
        {
            "series": f"lnet_ni_up{{{nid.replace('1.1.1.1', '1.1.2.1').replace('eth0', 'eth1')}}}",
            "values": "1x7",
        },
        {"series": 'lnet_up{instance="n", job="lnet"}', "values": "1x7"},
        {"series": 'lnet_up{instance="m", job="lnet"}', "values": "1 0 0 0 0 0 0 0"},
    ]
    alert = {"severity": "warning", "instance": "n", "job": "lnet", "net": "tcp"}
    shown = "Look at the link and the device, and at `lnetctl net show -v 4`."
    down = {
        "exp_labels": {**alert, "nid": "1.1.1.1@tcp", "interface": "eth0"},
        "exp_annotations": {
            "summary": "n: 1.1.1.1@tcp (eth0) is down",
            "description": f"Traffic goes over the other NIs. {shown}",
        },
    }
    cases = [
        {"alertname": "LNetInterfaceDown", "eval_time": "1m", "exp_alerts": []},
        {"alertname": "LNetInterfaceDown", "eval_time": "4m", "exp_alerts": [down]},
        {"alertname": "LNetInterfaceDown", "eval_time": "7m", "exp_alerts": []},
        {"alertname": "LNetNetDown", "eval_time": "4m", "exp_alerts": []},
    ]
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "30s",
        "tests": [{"interval": "1m", "input_series": series, "alert_rule_test": cases}],
    }
    (tmp_path / "test.yml").write_text(json.dumps(test))
    for words in (["check", "rules", str(RULES)], ["test", "rules", str(tmp_path / "test.yml")]):
        done = subprocess.run(
            [prometheus_tools / "promtool", *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stdout + done.stderr


_ASK = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=10).read().decode())"


@contextmanager
def prometheus(tools: Path, folder: Path, host: Host, targets: list[str]) -> Iterator[Callable[[str], Any]]:
    """A Prometheus in a host, with our rules made quick; what its API says."""
    rules = folder / "rules.yml"
    rules.write_text(re.sub("for: [1-5]?[0-9][sm]", "for: 1s", RULES.read_text()))
    config = {
        "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
        "rule_files": [str(rules)],
        "scrape_configs": [{"job_name": "lnet", "static_configs": [{"targets": targets}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    command = [
        str(tools / "prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--web.listen-address=127.0.0.1:9090",
        f"--web.console.templates={folder}",
        f"--web.console.libraries={folder}",
    ]

    def ask(path: str) -> Any:
        url = f"http://127.0.0.1:9090/api/v1/{path}"
        done = host.run(sys.executable, "-S", "-c", _ASK, url, check=False)
        return json.loads(done.stdout)["data"] if done.returncode == 0 else None

    with (folder / "prometheus.log").open("w+") as log:
        words = host.words(*command)
        with subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, "GOMAXPROCS": "1"}) as server:
            try:
                yield ask
            finally:
                server.send_signal(signal.SIGTERM)
        assert server.returncode == 0


def test_prometheus_scrapes_two_hosts_and_the_alert_of_a_cut_rail_fires_and_clears(
    two_hosts: Cluster, prometheus_tools: Path, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        daemons = []
        for host in two_hosts:
            at = f"{host.address()}:9989"
            path = tmp_path / f"{host.number}.sock"
            daemon = Daemon(path, "--drain", "0.1", "--metrics", at, before=host.words())
            stack.callback(daemon.end)
            for rail in range(2):
                assert daemon.lnetctl("net", "add", "--nid", host.nid(rail, f"tcp{rail or ''}")).code == 0
            daemons.append(daemon)
        one, other = two_hosts.hosts
        assert daemons[0].lnetctl("discover", other.nid()).code == 0
        targets = [f"{host.address()}:9989" for host in two_hosts]
        ask = stack.enter_context(prometheus(prometheus_tools, tmp_path, one, targets))

        def scraped() -> bool:
            found = ask("query?query=lnet_ni_up==1")
            return found is not None and len(found["result"]) == 4

        def firing() -> set[tuple[str, str]]:
            found = ask("alerts") or {"alerts": []}
            labels = [alert["labels"] for alert in found["alerts"] if alert["state"] == "firing"]
            return {(one["alertname"], one["instance"]) for one in labels}

        words = (tmp_path / "prometheus.log").read_text
        wait(scraped, words)
        assert firing() == set()
        two_hosts.set_cable(other, 1, False)
        down = {(name, targets[1]) for name in ("LNetInterfaceDown", "LNetNetDown")}
        wait(lambda: down <= firing(), words)
        assert {where for name, where in firing() if name == "LNetInterfaceDown"} == {targets[1]}
        two_hosts.set_cable(other, 1, True)
        wait(lambda: not firing(), words)


def test_the_dashboard_asks_for_what_there_is(
    daemons: list[Daemon], metrics: int, prometheus_tools: Path, tmp_path: Path
) -> None:
    """Each query is one that Prometheus reads, and each metric in it is served or told in families."""
    dashboard = json.loads((RULES.parents[1] / "grafana" / "lnet.json").read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(queries) > 15
    rules = [
        {"record": f"a:{number}", "expr": query.replace("$__rate_interval", "1m").replace("$instance", ".*")}
        for number, query in enumerate(queries)
    ]
    (tmp_path / "queries.yml").write_text(json.dumps({"groups": [{"name": "x", "rules": rules}]}))
    command = [str(prometheus_tools / "promtool"), "check", "rules", str(tmp_path / "queries.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    asked = set(re.findall(r"\blnet_\w+", " ".join(queries) + RULES.read_text()))
    served = set(re.findall(r"(?m)^(lnet_\w+)", get(metrics)[1]))
    only_routers = {"lnet_route_up", "lnet_router_buffer_credits"}  # this node has no routes
    only_faults = {"lnet_drops_total"}
    assert asked - served == only_routers | (asked & only_faults)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(places)


def test_the_dashboard_is_one_by_grafanas_schema() -> None:
    """Nothing in it is unknown to the types that Grafana makes of its schema, and nothing is lost."""
    plugins: Any = import_module("grafana_foundation_sdk.cog.plugins")
    models: Any = import_module("grafana_foundation_sdk.models.dashboard")
    encoder: Any = import_module("grafana_foundation_sdk.cog.encoder")
    plugins.register_default_plugins()
    written = json.loads((RULES.parents[1] / "grafana" / "lnet.json").read_text())
    dashboard = models.Dashboard.from_json(written)
    back = json.loads(encoder.JSONEncoder().encode(dashboard))
    assert list(_lost(written, back, "")) == []
    panels = [panel for panel in dashboard.panels if panel.type_val != "row"]
    assert all(panel.title and panel.targets and panel.grid_pos.w > 0 for panel in panels)
    assert {panel.type_val for panel in panels} == {"stat", "timeseries"}


def _lost(one: Any, other: Any, at: str) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key, value in one.items():
            yield from _lost(value, other.get(key), f"{at}/{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _lost(left, right, f"{at}[{number}]")
    elif one != other:
        yield f"{at}: {one!r}, {other!r}"

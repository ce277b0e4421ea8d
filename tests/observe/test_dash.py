"""The server of `ulnet dash`: frames, histories, reasons, who may ask; what is drawn."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from email.message import Message
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvicorn

from observe.test_top import FAR, A, B, Scripted, peer, rail, shown
from support.daemon import PATIENCE, Daemon, environment
from support.ports import free_port
from ulnet.observe import connection as connection_module
from ulnet.observe.connection import Connection
from ulnet.observe.dash import Dash, Guard
from ulnet.observe.fabric import picture
from ulnet.observe.live import Live
from ulnet.observe.snapshot import Snapshot
from ulnet.observe.source import Source

ULNET = [sys.executable, "-m", "ulnet"]


@contextmanager
def serve(
    nodes: list[tuple[str, Source]],
    hosts: set[str] | None = None,
    token: str | None = None,
    every: float = 0.1,
) -> Iterator[int]:
    """The page in a thread; its port."""
    dash = Dash(nodes, every)
    app = Guard(dash.app, hosts=hosts, token=token)
    port = free_port()
    config = uvicorn.Config(
        app, "127.0.0.1", port, http=Connection, log_level="warning", timeout_graceful_shutdown=5
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        give_up = time.monotonic() + PATIENCE
        while not server.started and time.monotonic() < give_up:
            time.sleep(0.01)
        yield port
    finally:
        dash.end()
        server.should_exit = True
        thread.join(PATIENCE)


class Answer(NamedTuple):
    status: int
    headers: Message
    text: str


def get(port: int, path: str, method: str = "GET", **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request(method, path, headers={name.replace("_", "-"): text for name, text in headers.items()})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return Answer(answer.status, answer.headers, text)


def document(port: int, path: str) -> Any:
    return json.loads(get(port, path).text)


class Page:
    """What a page hears, event by event."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self._connection.request("GET", "/frames")
        self._answer = self._connection.getresponse()
        self.status = self._answer.status

    def next(self, kind: str = "frame") -> Any:
        event = ""
        for line in self._answer:
            text = line.decode().rstrip("\n")
            if text.startswith("event: "):
                event = text.removeprefix("event: ")
            elif text.startswith("data: ") and event == kind:
                return json.loads(text.removeprefix("data: "))
        raise AssertionError("the stream has ended")

    def until(self, condition: Any) -> Any:
        while not condition(frame := self.next()):
            pass
        return frame

    def close(self) -> None:
        self._answer.close()
        self._connection.close()


def test_the_command_shows_a_daemon_and_its_restart(tmp_path: Path) -> None:
    port = str(free_port())
    daemon = Daemon(tmp_path / "s", "--accept", "all", "--accept-port", port)
    words = ["dash", "--socket", str(daemon.path), "--listen", "127.0.0.1:0", "--every", "0.1"]
    dash = subprocess.Popen([*ULNET, *words], env=environment(), stdout=subprocess.PIPE, text=True)
    try:
        assert dash.stdout is not None
        said = dash.stdout.readline()
        assert said.startswith("dashboard: http://127.0.0.1:") and said.endswith("/\n")
        at = int(said.rsplit(":", 1)[1].rstrip("/\n"))
        with closing(Page(at)) as page:
            assert page.next("past") == [] or page.next()
            for nid in ("127.6.7.1@tcp", "127.6.7.2@tcp1"):
                assert daemon.lnetctl("net", "add", "--nid", nid).code == 0
            frame = page.until(lambda frame: len(frame["nodes"][0]["rails"]) == 2)
            assert [one["state"] for one in frame["nodes"][0]["rails"]] == ["up", "up"]
            assert frame["nets"] == ["tcp", "tcp1"]
            assert daemon.lnetctl("ping", "--timeout", "5", "127.6.7.2@tcp1").code == 0
            told = document(at, "/rail?nid=127.6.7.1@tcp&to=127.6.7.9@tcp")
            assert told["explain"]["from"] == "127.6.7.1@tcp"
            line = f"lnetctl --socket {daemon.path} net show -v 4 --net tcp"
            assert line in [one["line"] for one in told["commands"]]
            daemon.end()
            # A request that was under way as it ended is told first, by other words.
            frame = page.until(lambda frame: "no lnetd answers" in (frame["nodes"][0].get("why") or ""))
            assert frame["nodes"][0]["silent"]
            assert len(frame["nodes"][0]["rails"]) == 2  # as they were
            daemon = Daemon(tmp_path / "s", "--accept", "all", "--accept-port", port)
            page.until(lambda frame: not frame["nodes"][0]["silent"])
            with closing(Page(at)) as later:
                kinds = [one["kind"] for one in later.next("past")]
            assert kinds[0] == "recording began"
            assert kinds.index("does not answer") < kinds.index("answers again")
        assert len(document(at, "/history?nid=127.6.7.1@tcp&nid=none")) in (0, 1)
        dash.send_signal(signal.SIGTERM)
        assert dash.wait(PATIENCE) == 0
    finally:
        dash.kill()
        dash.communicate()
        daemon.end()


def test_pages_hear_what_changed_and_what_was() -> None:
    source = Scripted()
    with serve([("one", source)]) as port, closing(Page(port)) as page:
        source.show(shown([rail(A), rail(B)]))
        first = page.next()
        assert [one["kind"] for one in first["events"]] == ["recording began"]
        source.show(shown([rail(A, sent=50), rail(B, status="down")]))
        second = page.next()
        assert [(one["kind"], one["subject"], one["serial"]) for one in second["events"]] == [
            ("NI status", B, 2)
        ]
        a, b = second["nodes"][0]["rails"]
        assert (a["state"], b["state"]) == ("up", "down")
        assert a["messages"] > 0 and a["bytes"] > 0
        assert (a["since"], b["since"]) == (None, pytest.approx(second["at"], abs=5))
        ((at,), (messages,), (size,), (health,)) = document(port, f"/history?nid={A}")[A]
        assert (messages, size) == (
            pytest.approx(a["messages"], rel=0.01),
            pytest.approx(a["bytes"], rel=0.01),
        )
        assert (health, at <= second["at"]) == (1000, True)
        with closing(Page(port)) as later:
            assert [one["serial"] for one in later.next("past")] == [1, 2]
            assert later.next()["at"] == second["at"]  # at once, not with the next reading


def test_a_slow_page_misses_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets the newest frame, with the events of all that it did not get."""
    source = Scripted()
    dash = Dash([("one", source)])

    async def play() -> tuple[Any, Any]:
        stream = dash._stream()
        past = json.loads((await anext(stream)).partition("data: ")[2])
        for at, status in enumerate(("up", "down", "up")):
            dash.lives[0].take(shown([rail(A, status=status)]), float(at))
            dash._draw()
        frame = json.loads((await anext(stream)).partition("data: ")[2])
        await stream.aclose()
        return past, frame

    past, frame = asyncio.run(play())
    assert past == []
    assert [event["after"] for event in frame["events"]] == ["", "down", "up"]
    assert frame["nodes"][0]["rails"][0]["state"] == "up"


def test_what_no_node_sees_alone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ulnet.observe.dash._COMPARED", 0.1)
    one, other = Scripted(), Scripted()
    with serve([("one", one), ("other", other)]) as port, closing(Page(port)) as page:
        one.show(shown([rail(A)], [peer(FAR)]))
        other.show(shown([rail(FAR), rail("10.0.1.2@tcp1")], [peer(A, B)]))
        (found,) = page.until(lambda frame: frame["findings"])["findings"]
        assert (found["level"], found["where"]) == ("warning", "other")
        assert found["text"].startswith(f"{B} is taken for one, which has no such NID now")
        other.show(shown([rail(FAR), rail("10.0.1.2@tcp1")], [peer(A)]))
        page.until(lambda frame: not frame["findings"])


def test_reasons_of_a_rail_and_of_one_that_is_not_there() -> None:
    source = Scripted()
    with serve([("one", source)]) as port, closing(Page(port)) as page:
        peers = [peer(FAR, "10.0.1.2@tcp1"), peer("10.0.0.3@tcp")]
        source.show(shown([rail(A), rail(B)], peers))
        page.next()
        told = document(port, f"/rail?nid={A}")
        assert (told["node"], told["to"], told["peers"]) == ("one", FAR, [FAR, "10.0.0.3@tcp"])
        assert told["explain"]["to"] == FAR
        assert document(port, f"/rail?nid={A}&to=10.0.0.3@tcp")["explain"]["to"] == "10.0.0.3@tcp"
        assert "banana" in document(port, f"/rail?nid={A}&to=banana")["refused"]
        missing = get(port, "/rail?nid=1.1.1.1@tcp")
        assert missing.status == 404
        assert "no node that is asked has the NID 1.1.1.1@tcp" in missing.text


def test_who_may_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Scripted()
    with serve([("one", source)], hosts={"127.0.0.1", "localhost", "::1"}, token="s3cret") as port:
        assert get(port, "/", Host="evil.example").status == 421
        assert get(port, "/", Host="[").status == 421
        assert get(port, "/", "POST").status == 405
        assert (
            get(port, "/").status == get(port, "/?token=wrong").status == get(port, "/frames").status == 401
        )
        assert get(port, "/rail?token=s3cret&nid=x").status == 401  # in the address it is for the page alone
        answer = get(port, "/?token=s3cret")
        assert (answer.status, answer.headers["location"]) == (303, "./")
        cookie = answer.headers["set-cookie"].partition(";")[0]
        assert "httponly" in answer.headers["set-cookie"].lower()
        assert "samesite=strict" in answer.headers["set-cookie"].lower()
        page = get(port, "/", Cookie=cookie)
        assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert page.headers["content-security-policy"].startswith("default-src 'self';")
        assert get(port, "/dash.js", Authorization="Bearer s3cret").status == 200
        assert get(port, "/dash.js", Authorization="Bearer s3cre").status == 401
        assert get(port, "/../dash.py", Cookie=cookie).status == 404
        monkeypatch.setattr("ulnet.observe.dash._MOST_PAGES", 0)
        assert get(port, "/frames", Cookie=cookie).status == 503


def test_other_hosts_need_a_token_which_is_printed() -> None:
    words = ["dash", "--file", "/dev/null", "--listen", "0.0.0.0:0"]
    dash = subprocess.Popen([*ULNET, *words], env=environment(), stdout=subprocess.PIPE, text=True)
    try:
        assert dash.stdout is not None
        said = dash.stdout.readline()
        token = said.strip().partition("/?token=")[2]
        assert len(token) > 16
        port = int(said.rsplit(":", 1)[1].partition("/")[0])
        assert get(port, "/").status == 401
        assert get(port, f"/?token={token}").status == 303
    finally:
        dash.send_signal(signal.SIGTERM)
        dash.communicate(timeout=PATIENCE)


def test_half_requests_keep_nobody_out(tmp_path: Path) -> None:
    """Before: with as many as the process may have files nobody got in, and accept() filled the log."""
    words = ["dash", "--socket", str(tmp_path / "none"), "--listen", "127.0.0.1:0", "--every", "0.1"]
    limit = ["prlimit", "--nofile=512:512"]
    dash = subprocess.Popen(
        [*limit, *ULNET, *words], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert dash.stdout is not None
        port = int(dash.stdout.readline().rsplit(":", 1)[1].rstrip("/\n"))
        with closing(Page(port)) as page, ExitStack() as stack:
            page.next()
            for _ in range(600):
                half = stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE))
                with suppress(OSError):  # it may have given way already
                    half.send(b"GET / HTTP/1.1\r\nHost: loc")
            assert get(port, "/").status == 200
            page.next()  # whoever asks for something stays
    finally:
        dash.terminate()
        said = dash.communicate()[1]
    assert said == ""


def test_the_next_request_of_a_connection_has_to_come_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_SLOW", 0.2)
    with (
        serve([("one", Scripted())]) as port,
        socket.create_connection(("127.0.0.1", port), PATIENCE) as client,
        client.makefile("rb") as answers,
    ):
        for _ in range(2):
            client.sendall(b"GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n")
            length = 0
            while (line := answers.readline().lower()) != b"\r\n":
                assert line
                if line.startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            answers.read(length)
        client.sendall(b"GET /")
        with suppress(ConnectionResetError):
            assert answers.read(1) == b""


def test_who_sends_much_ahead_of_answers_is_hung_up_on() -> None:
    """Before: with each answer 256 KiB more were read: 100 MB by one connection."""
    with (
        serve([("one", Scripted())]) as port,
        socket.create_connection(("127.0.0.1", port), PATIENCE) as client,
        pytest.raises((ConnectionResetError, BrokenPipeError)),
    ):
        client.sendall(b"GET /frames HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1_000_000)


def test_a_document_that_cannot_be_drawn_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = Scripted(), Scripted()
    take = Live.take

    def broken(live: Live, snapshot: Snapshot, now: float) -> Any:
        if live.name == "one":
            raise ValueError("a mistake")
        return take(live, snapshot, now)

    monkeypatch.setattr(Live, "take", broken)
    with serve([("one", one), ("other", other)]) as port, closing(Page(port)) as page:
        one.show(shown([rail(A)]))
        other.show(shown([rail(B)]))
        page.until(lambda frame: frame["nodes"][1]["rails"])
        one.show(shown([rail(A)]))
        other.show(shown([rail(B)]))
        page.next()
    assert "what one shows cannot be drawn" in caplog.text


def test_an_address_that_is_taken_and_files_that_name_no_nodes(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("nodes: 7\n")
    for words, code, why in (
        (["--nodes", str(tmp_path / "bad.yaml")], 2, "it names no nodes"),
        (["--nodes", str(tmp_path / "none")], 2, "cannot be read"),
        (["--listen", "192.0.2.1:9"], 1, "cannot listen on 192.0.2.1, port 9"),
        (["--tool", " "], 2, "no command"),
    ):
        command = [*ULNET, "dash", *words]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
        assert (done.returncode, why in done.stderr) == (code, True), done.stderr


def live(name: str, *snapshots: Snapshot) -> Live:
    found = Live(name)
    for at, one in enumerate(snapshots):
        found.take(one, 10.0 * at)
    return found


def test_nodes_that_are_asked_are_not_drawn_twice_and_others_by_what_is_seen_of_them() -> None:
    third = "10.0.0.3@tcp"
    one = live(
        "one",
        shown([rail(A), rail(B)], [peer(FAR), peer(third, "10.0.1.3@tcp1")]),
        shown([rail(A, 100), rail(B)], [peer(FAR), peer(third, "10.0.1.3@tcp1", sent=40)]),
    )
    unwell = peer(third, "10.0.1.3@tcp1")
    unwell["peer ni"][1]["health stats"] = {"health value": 700}
    two = live("two", shown([rail(FAR)], [peer(A, B), unwell]), shown([rail(FAR)], [peer(A, B), unwell]))
    drawn = picture([one, two])
    assert [(node["name"], node["asked"]) for node in drawn["nodes"]] == [
        ("one", True),
        ("two", True),
        (third, False),
    ]
    first, second = drawn["nodes"][2]["rails"]
    assert (first["nid"], first["state"], first["messages"]) == (third, "up", 4.0)
    assert (second["net"], second["state"], second["health"], second["why"]) == (
        "tcp1",
        "unwell",
        700,
        "health 700",
    )
    assert first["bytes"] is None
    assert drawn["nodes"][0]["rails"][0]["bytes"] == 10_000
    assert drawn["nets"] == ["tcp", "tcp1", "tcp7"]
    assert drawn["routes"] == [{"net": "tcp7", "gateway": "10.0.0.9@tcp", "up": False}]


def test_a_gateway_is_a_router() -> None:
    gateway = live("gw", shown([rail("10.0.0.9@tcp")]))
    drawn = picture([live("one", shown([rail(A)])), gateway])
    assert [node["router"] for node in drawn["nodes"]] == [False, True]

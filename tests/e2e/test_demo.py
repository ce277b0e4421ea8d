"""`ulnet demo` as a newcomer runs it, and what it must refuse."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from support.ports import free_port
from ulnet import Node
from ulnet.demo import worker
from ulnet.demo.network import DemoError, Namespaces, namespaces
from ulnet.demo.signals import cancelled_by_signals, ended_by_signals
from ulnet.demo.transfer import PACED_PIECES, SMALLEST_CHUNK, FileSender
from ulnet.demo.worker import Job
from ulnet.lnd.tcp import TcpLnd, TcpParams
from ulnet.nid import LNET_PID, Nid

DEMO = [sys.executable, "-m", "ulnet", "demo"]


PATIENCE = 240.0  # seconds for five processes that move files for 16 s, and wait for a CPU before each step
CUT = "A rail was cut: every byte arrived all the same, and the rail is back."


@pytest.fixture(autouse=True)
def hangs_up() -> Iterator[None]:
    """What the tests start hears SIGHUP, though they themselves may run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def run(*words: str, code: int = 0) -> str:
    done = subprocess.run([*DEMO, *words], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def test_an_output_that_takes_nothing_is_told() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*DEMO, "--size", "1M", "--no-cut"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    said = "ulnet: what it says cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, said)


@pytest.mark.requirement("tst-010")
def test_a_random_file_over_two_rails() -> None:
    told = run("--size", "128M", "--no-cut", "--statistics")
    assert "every rail carried its share" in told
    assert "127.0.1.2@tcp" in told and "127.0.2.2@tcp" in told
    assert told.count("send_count") == 4
    sums = [line.split()[-1] for line in told.splitlines() if line.startswith("sha256")]
    assert len(sums) == 2 and sums[0] == sums[1]


async def test_each_rail_is_connected_before_shares_are_counted() -> None:
    rails = [(f"127.0.{47 + rail}.1@tcp{rail}", f"127.0.{47 + rail}.2@tcp{rail}") for rail in range(4)]
    tcp = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
    async with Node(tcp=tcp) as near, Node(tcp=tcp) as far:
        for here, there in rails:
            near.add_ni(here)
            far.add_ni(there)
        job = Job("send", [here for here, _ in rails], [there for _, there in rails], "", 0, 0)
        near.add_peer(job.peer[0], job.peer[1:])
        await worker._connect(near, job)
        for here, there in rails:
            peer = near.driver(TcpLnd)._states[Nid.parse(here)].peers.get((Nid.parse(there), LNET_PID))
            assert peer is not None and peer.conns, f"{here} -> {there} has no connection"


def test_a_file_of_ones_own_over_three_rails(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    path.write_bytes(bytes(range(256)) * 4567)
    told = run("--file", str(path), "--rails", "3", "--no-cut")
    assert "every rail carried its share" in told
    assert "send_count" not in told
    bars = re.findall(r"([\d.]+)/([\d.]+) .*0:00", told)
    assert len(bars) == 4 and all(done == total for done, total in bars), told
    assert path.stat().st_size == 256 * 4567


@pytest.mark.leaks("the file is mapped until its next piece is sent, in some months")
async def test_what_is_slowed_down_leaves_in_groups_which_want_every_rail(tmp_path: Path) -> None:
    path = tmp_path / "source"
    path.write_bytes(bytes(PACED_PIECES * SMALLEST_CHUNK))
    async with Node() as node:
        put: list[int] = []
        node.core.put = lambda *_, offset, **__: put.append(offset)
        target = Nid.parse("127.0.1.2@tcp")
        sending = asyncio.create_task(FileSender(node, target, path, 3, pace=0.001).run())
        while not put:
            await asyncio.sleep(0)
        assert put == [at * SMALLEST_CHUNK for at in range(6)], "two for each rail"
        sending.cancel()


@pytest.mark.requirement("snd-050", "snd-055")
def test_a_rail_is_cut_and_comes_back() -> None:
    told = run("--size", "64M")
    assert CUT in told
    assert "127.0.2.2@tcp cut" in told and "127.0.2.2@tcp repaired" in told
    assert "fault rules" in told  # what stands in for a link
    assert "resending over 127.0.1.1@tcp -> 127.0.1.2@tcp: 127.0.2.1@tcp" in told.replace("\n", " ")
    sums = {line.split()[-1] for line in told.splitlines() if line.startswith("sha256")}
    assert len(sums) == 1


@pytest.mark.requirement("hlt-005", "hlt-025", "snd-080", "snd-085")
def test_a_real_link_goes_down_and_comes_back(namespaces_work: None) -> None:
    words = [*DEMO, "--size", "64M", "--net"]
    demo = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    told, errors = demo.communicate(timeout=PATIENCE)
    assert demo.returncode == 0, told + errors
    assert CUT in told
    assert "ip link set rail1 down" in told
    assert "10.77.1.1@tcp1: device failed, FAILED now" in told
    there = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert f"ulnet-demo-{demo.pid}-" not in there  # others' may be there


@contextmanager
def under_way(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A demo, in a process group of its own as a terminal's, whose nodes have work for some 12 s more."""
    demo = subprocess.Popen(
        [*DEMO, "--size", "64M", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    try:
        assert demo.stdout is not None
        told: list[str] = []
        while not told or not told[-1].endswith(" cut\n"):
            told.append(demo.stdout.readline())
            assert told[-1], f"{''.join(told)}{demo.communicate()}"
        assert any(folder.iterdir())
        yield demo
    finally:
        demo.kill()
        demo.communicate()


def nodes_of(demo: subprocess.Popen[Any]) -> list[Path]:
    """Where the kernel tells of the processes that the demo has started; they vanish with them."""
    listed = Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text(encoding="ascii").split()
    return [Path("/proc", pid) for pid in listed]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_demo_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with under_way(tmp_path) as demo:
        nodes = nodes_of(demo)
        assert len(nodes) == 2
        os.killpg(demo.pid, number)  # as a terminal does
        _, errors = demo.communicate(timeout=PATIENCE)
    assert (demo.returncode, errors) == (128 + number, "")
    assert not any(node.exists() for node in nodes)
    assert not any(tmp_path.iterdir())


def test_a_terminal_that_is_closed_ends_the_demo_and_leaves_nothing(tmp_path: Path) -> None:
    ours, terminal = pty.openpty()
    environment = {**os.environ, "TMPDIR": str(tmp_path), "TERM": "xterm"}
    environment.pop("PYTHONUNBUFFERED", None)  # or nothing is left that could fail again at the end
    demo = subprocess.Popen(
        ["setsid", "--ctty", *DEMO, "--size", "64M"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment,
    )
    try:
        os.close(terminal)
        told = b""
        while not re.search(rb"s: \S+ cut", re.sub(rb"\x1b\[[\d;?]*[a-zA-Z]", b"", told)):
            told += os.read(ours, 1 << 16)  # fails where the demo has ended already
        nodes = nodes_of(demo)
        assert len(nodes) == 2
        os.close(ours)  # what it says, and what it does to its picture, fails from now on
        assert demo.wait(PATIENCE) == 128 + signal.SIGHUP
    finally:
        demo.kill()
        demo.wait()
    assert not any(node.exists() for node in nodes)
    assert not any(tmp_path.iterdir())


def test_a_signal_to_the_demo_alone_removes_its_namespaces_too(tmp_path: Path, namespaces_work: None) -> None:
    with under_way(tmp_path, "--net") as demo:
        nodes = nodes_of(demo)
        demo.terminate()
        _, errors = demo.communicate(timeout=PATIENCE)
    assert (demo.returncode, errors) == (128 + signal.SIGTERM, "")
    assert not any(node.exists() for node in nodes)
    assert not any(tmp_path.iterdir())
    there = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert f"ulnet-demo-{demo.pid}-" not in there


def test_a_signal_before_any_node_runs_ends_the_demo(tmp_path: Path) -> None:
    words = [*DEMO, "--size", "1G"]
    demo = subprocess.Popen(words, stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)})
    while not list(tmp_path.glob("*/source")):  # it is being filled
        assert demo.poll() is None
    demo.terminate()
    assert demo.communicate(timeout=PATIENCE)[1] == b""
    assert demo.returncode == 128 + signal.SIGTERM
    assert not any(tmp_path.iterdir())


def test_a_signal_that_comes_while_the_first_one_ends_the_demo_changes_nothing() -> None:
    told: list[str] = []

    def work() -> None:
        try:
            signal.raise_signal(signal.SIGHUP)
            told.append("went on")
        finally:
            signal.raise_signal(signal.SIGHUP)  # the shell's
            signal.raise_signal(signal.SIGTERM)
            told.append("removed")

    with pytest.raises(SystemExit) as ended, ended_by_signals():
        work()
    assert told == ["removed"]
    assert ended.value.code == 128 + signal.SIGHUP


def test_a_signal_does_not_cut_short_the_end_of_the_nodes() -> None:
    told: list[str] = []

    async def work(early: bool) -> None:
        with cancelled_by_signals() as interruption:
            try:
                if early:
                    signal.raise_signal(signal.SIGTERM)
                    await asyncio.Event().wait()
            finally:
                interruption.wait()
                signal.raise_signal(signal.SIGHUP)
                await asyncio.sleep(0)  # what is cancelled is so by now
                await asyncio.sleep(0)
                told.append("nodes ended")
        told.append("went on")

    for early, number in ((True, signal.SIGTERM), (False, signal.SIGHUP)):
        with pytest.raises(SystemExit) as ended, ended_by_signals():
            asyncio.run(work(early))
        assert ended.value.code == 128 + number
    assert told == ["nodes ended", "nodes ended"]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_signal_that_is_ignored_stays_so(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_IGN)  # as nohup has it
    try:
        with ended_by_signals():
            signal.raise_signal(number)
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_a_node_whose_director_hangs_up_gives_its_work_up(tmp_path: Path) -> None:
    job = Job("receive", ["127.0.61.2@tcp"], ["127.0.61.1@tcp"], str(tmp_path / "copy"), 4096, free_port())
    words = [sys.executable, "-m", "ulnet.demo.worker", json.dumps(asdict(job))]
    node = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert node.stdout is not None
        assert json.loads(node.stdout.readline()) == {"state": "ready"}
        _, errors = node.communicate(timeout=PATIENCE)  # it closes the node's input; nobody ever sends
    finally:
        node.kill()
        node.communicate()
    assert (node.returncode, errors) == (1, b"")


def test_namespaces_without_root_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(DemoError, match="needs root: run it as root, or without --net"), namespaces(2):
        pass


def test_a_command_of_ip_that_fails_is_told() -> None:
    with pytest.raises(DemoError, match="failed"):
        Namespaces("ulnet-no-such-left", "ulnet-no-such-right", 2).act(True)


def test_with_one_rail_none_is_cut() -> None:
    assert "No rail is cut: there is one rail only." in run("--size", "4M", "--rails", "1")


@pytest.mark.parametrize("size", [0, 1, 4097])
def test_tiny_files_arrive_too(tmp_path: Path, size: int) -> None:
    path = tmp_path / "tiny"
    path.write_bytes(bytes(size))
    assert "Every byte arrived" in run("--file", str(path))


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--file", "/nonexistent"), 1, "/nonexistent is not a file"),
        (("--size", "12Q"), 2, "no size"),
        (("--rails", "0"), 2, "1 to 16 rails"),
        (("--size", "9999999G", "--no-cut"), 1, "free and the demo needs"),
    ],
)
def test_bad_words_are_refused(words: tuple[str, ...], code: int, text: str) -> None:
    assert text in run(*words, code=code)

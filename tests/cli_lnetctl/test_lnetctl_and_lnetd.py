"""lnetctl and lnetd as processes: what is printed where, exit statuses, start, stop, start-up files."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
import yaml

from support.daemon import PATIENCE, Daemon, Done, environment, lnetctl, lnetd, without_times
from support.ports import free_port

LO = "net:\n-     net type: lo\n      local NI(s):\n      -     nid: 0@lo\n            status: up\n"
TCP = "-     net type: tcp\n      local NI(s):\n      -     nid: 127.0.0.2@tcp\n            status: up\n"


@pytest.mark.requirement("cfg-005", "cfg-060", "cfg-065")
def test_a_session_as_an_administrator_knows_it(daemon: Daemon, port: int) -> None:
    ask = daemon.lnetctl
    assert ask("net", "show") == (0, LO, "")
    assert ask("net", "add", "--nid", "127.0.0.2@tcp") == (0, "", "")
    assert ask("net", "show") == (0, LO + TCP, "")
    assert ask("net", "add", "--nid", "127.0.0.2@tcp") == (
        239,
        "",
        "---\nadd:\n-     net:\n      errno: -17\n"
        "      descr: ! \"127.0.0.2@tcp is configured already: see 'lnetctl net show'\"\n...\n",
    )
    code, out, err = ask("ping", "127.0.0.2@tcp", "127.0.0.9@tcp")
    assert (code, err) == (145, "")
    assert out.startswith(
        "ping:\n- primary nid: 127.0.0.2@tcp\n  Multi-Rail: false\n  peer_ni:\n  - nid: 127.0.0.2@tcp\n"
        "manage:\n- ping:\n  errno: -111\n  descr: ! 'failed to ping 127.0.0.9@tcp: Connection refused: "
    )
    assert ask("ping", "banana").err.startswith("---\nmanage:\n-     ping:\n      errno: -22\n")
    assert ask("peer", "add", "--prim_nid", "10.0.0.2@tcp", "--nid", "10.0.1.[2-3]@tcp1").code == 0
    assert ask("peer", "list").out.splitlines()[-1] == "-     nid: 10.0.0.2@tcp"
    assert ask("peer", "show", "--nid", "10.0.1.3@tcp1").out == (
        "peer:\n-     primary nid: 10.0.0.2@tcp\n      Multi-Rail: true\n      peer ni:\n"
        "      -     nid: 10.0.0.2@tcp\n            state: NA\n"
        "      -     nid: 10.0.1.2@tcp1\n            state: NA\n"
        "      -     nid: 10.0.1.3@tcp1\n            state: NA\n"
    )
    assert ask("peer", "del", "--prim_nid", "10.0.0.2@tcp") == (0, "", "")
    assert ask("peer", "del", "--prim_nid", "10.0.0.2@tcp").code == 254
    assert yaml.safe_load(ask("stats", "show").out)["statistics"]["send_count"] == 2
    assert ask("stats", "reset") == (0, "", "")
    assert yaml.safe_load(ask("stats", "show").out)["statistics"]["send_count"] == 0
    assert yaml.safe_load(ask("global", "show").out)["global"]["lnd_timeout"] == 49
    assert ask("net", "del", "--net", "tcp") == (0, "", "")
    assert ask("net", "show") == (0, LO, "")


def test_unconfigured_and_configured_again(daemon: Daemon) -> None:
    ask = daemon.lnetctl
    assert ask("net", "add", "--nid", "127.0.0.2@tcp").code == 0
    assert ask("lnet", "unconfigure") == (0, "", "")
    assert ask("lnet", "unconfigure") == (0, "", "")
    down = "LNet is not configured on this node: run 'lnetctl lnet configure' first"
    assert ask("net", "show") == (
        156,
        "",
        f'---\nshow:\n-     net:\n      errno: -100\n      descr: ! "{down}"\n...\n',
    )
    assert ask("stats", "show") == (
        156,
        "",
        f'show:\n    - statistics:\n          errno: -100\n          descr: "{down}"\n',
    )
    assert ask("net", "add", "--nid", "127.0.0.2@tcp").code == 148
    assert ask("lnet", "configure") == (0, "", "")
    assert ask("net", "show") == (0, LO, "")


def test_export_prints_or_writes_a_file(daemon: Daemon, tmp_path: Path) -> None:
    ask = daemon.lnetctl
    ask("net", "add", "--nid", "127.0.0.2@tcp")
    shown = ask("export", "--backup").out
    assert list(yaml.safe_load(shown)) == ["net", "global"]
    file = tmp_path / "lnet.yaml"
    assert ask("export", "-b", str(file)) == (0, "", "")
    assert file.read_text() == shown
    full = yaml.safe_load(ask("export").out)
    assert [net["net type"] for net in full["net"]] == ["lo", "tcp"]
    code, out, err = ask("export", str(tmp_path))
    assert (code, out) == (256 - 21, "")
    assert f"{tmp_path} cannot be written: Is a directory" in err


def test_the_socket_comes_from_option_or_environment(daemon: Daemon) -> None:
    assert lnetctl("net", "show", ULNET_SOCKET=str(daemon.path)) == (0, LO, "")
    assert lnetctl("net", "show", "--socket", str(daemon.path)) == (0, LO, "")
    assert lnetctl(f"--socket={daemon.path}", "net", "show", ULNET_SOCKET="/nonexistent") == (0, LO, "")
    assert stat.S_IMODE(os.stat(daemon.path).st_mode) == 0o600


def test_the_prompt_talks_to_the_daemon(daemon: Daemon) -> None:
    done = daemon.lnetctl(stdin="net add --nid 127.0.0.2@tcp\nnet show --net tcp\nquit\n")
    assert done == (0, "net:\n" + TCP, "")


def test_output_that_nobody_reads_to_its_end_is_no_fault(daemon: Daemon) -> None:
    read, write = os.pipe()
    os.close(read)
    words = [sys.executable, "-m", "ulnet.cli.lnetctl", "--socket", str(daemon.path), "net", "show", "-v4"]
    done = subprocess.run(words, env=environment(), stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_script_waits_until_the_nets_are_up(tmp_path: Path) -> None:
    """The loop of the manual: the first answer of the daemon has the nets that it begins with."""
    path, port = tmp_path / "s", str(free_port())
    nids = [f"127.7.{n}.1@tcp" for n in range(1, 9)]
    config = tmp_path / "lnet.yaml"
    config.write_text(
        yaml.safe_dump({"net": [{"net type": "tcp", "local NI(s)": [{"nid": n} for n in nids]}]})
    )
    loop = "until $LNETCTL net show > /dev/null 2>&1; do sleep 0.1; done; $LNETCTL net show"
    command = f"{sys.executable} -m ulnet.cli.lnetctl --socket {path}"
    with socket.socket(socket.AF_UNIX) as left:  # the socket of a daemon that was killed is no answer
        left.bind(str(path))
    process = lnetd("--socket", str(path), "--config", str(config), "--accept", "all", "--accept-port", port)
    try:
        words, env = ["timeout", str(PATIENCE), "sh", "-c", loop], environment(LNETCTL=command)
        told = subprocess.run(words, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
        shown = [ni for net in yaml.safe_load(told)["net"] for ni in net["local NI(s)"]]
        assert {ni["nid"]: ni["status"] for ni in shown} == dict.fromkeys(["0@lo", *nids], "up")
    finally:
        process.kill()
        process.communicate()


# The daemon ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_daemon_and_removes_its_socket(daemon: Daemon, number: signal.Signals) -> None:
    assert (
        without_times(daemon.first_lines[-1])
        == f"lnetd: info: ready: LNet is up, control socket {daemon.path}\n"
    )
    done = daemon.stop(number)
    assert (done.code, done.out) == (0, "")
    assert without_times(done.err) == "lnetd: info: stopping\nlnetd: info: stopped\n"
    assert not daemon.path.exists()


SILENT = "127.0.0.77@tcp"


@pytest.fixture
def silent(port: int) -> Iterator[socket.socket]:
    """SILENT's port takes connections and says nothing; closed, it resets them."""
    with socket.create_server(("127.0.0.77", port)) as server:
        yield server


@contextmanager
def ping_under_way(daemon: Daemon) -> Iterator[list[Done]]:
    """A ping of SILENT that waits for its answer; it has ended after the block."""
    answers: list[Done] = []
    thread = Thread(target=lambda: answers.append(daemon.lnetctl("ping", "--timeout", "300", SILENT)))
    thread.start()
    while not yaml.safe_load(daemon.lnetctl("stats", "show").out)["statistics"]["msgs_alloc"]:
        assert thread.is_alive()
    yield answers
    thread.join()


def begin_to_stop(daemon: Daemon) -> None:
    """Ask it to end, wait until it says that it does."""
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.stderr is not None
    told = (without_times(line) for line in daemon.process.stderr)
    assert next(line for line in told if "audit" not in line) == "lnetd: info: stopping\n"


def test_stopping_lets_a_request_under_way_finish(
    start_daemon: Callable[..., Daemon], silent: socket.socket
) -> None:
    daemon = start_daemon("--drain", "600")
    daemon.lnetctl("net", "add", "--nid", "127.0.0.2@tcp")
    with ping_under_way(daemon) as answers:
        begin_to_stop(daemon)
        assert not answers
        silent.close()  # only now the ping can end
        assert daemon.process.wait(PATIENCE) == 0
    assert answers[0].out.startswith("manage:\n- ping:\n  errno: -")
    assert f"failed to ping {SILENT}: " in answers[0].out


def test_a_second_signal_ends_the_daemon_at_once(
    start_daemon: Callable[..., Daemon], silent: socket.socket
) -> None:
    daemon = start_daemon("--drain", "600")
    daemon.lnetctl("net", "add", "--nid", "127.0.0.2@tcp")
    with ping_under_way(daemon) as answers:
        begin_to_stop(daemon)
        assert daemon.stop().code == -signal.SIGTERM
    assert "hung up before it answered" in answers[0].err


def test_a_second_daemon_on_the_same_socket_is_refused(daemon: Daemon) -> None:
    process = lnetd("--socket", str(daemon.path))
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert out == ""
    assert without_times(err) == (
        f"lnetd: error: another lnetd answers on {daemon.path}: stop it first, "
        "or name another socket with --socket PATH\n"
    )
    assert daemon.lnetctl("net", "show").code == 0


def test_a_killed_daemons_socket_does_not_stand_in_the_way(start_daemon: Callable[..., Daemon]) -> None:
    first = start_daemon()
    first.process.kill()
    first.process.wait()
    assert first.path.exists()
    assert start_daemon().lnetctl("net", "show") == (0, LO, "")


def test_two_daemons_on_one_host_are_peers(start_daemon: Callable[..., Daemon]) -> None:
    one, two = start_daemon(name="one"), start_daemon(name="two")
    assert one.lnetctl("net", "add", "--nid", "127.0.0.2@tcp").code == 0
    assert two.lnetctl("net", "add", "--nid", "127.0.0.3@tcp,127.0.0.4@tcp1").code == 0
    answer = yaml.safe_load(one.lnetctl("ping", "127.0.0.3@tcp").out)
    assert answer["ping"][0]["peer_ni"] == [{"nid": "127.0.0.3@tcp"}, {"nid": "127.0.0.4@tcp1"}]
    busy = two.lnetctl("net", "add", "--nid", "127.0.0.2@tcp")
    assert busy.code == 156
    assert "127.0.0.2" in busy.err


def test_unconfigured_start(start_daemon: Callable[..., Daemon]) -> None:
    daemon = start_daemon("--unconfigured")
    assert "LNet is down" in daemon.first_lines[-1]
    assert daemon.lnetctl("net", "show").code == 156
    assert daemon.lnetctl("lnet", "configure").code == 0
    assert daemon.lnetctl("net", "show").out == LO


CONFIG = """\
net:
    - net type: tcp
      local NI(s):
        - nid: 127.0.0.2@tcp
          tunables: {credits: 64}
peer:
    - primary nid: 10.0.0.2@tcp
global:
    retry_count: 1
"""


@pytest.mark.requirement("cfg-005")
def test_a_startup_file_goes_through_the_same_code(
    start_daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    file = tmp_path / "lnet.yaml"
    file.write_text(CONFIG)
    daemon = start_daemon("--config", str(file))
    backup = daemon.lnetctl("export", "--backup").out
    shown = yaml.safe_load(backup)
    assert shown["net"][0]["local NI(s)"][0]["tunables"]["credits"] == 64
    assert shown["peer"][0]["primary nid"] == "10.0.0.2@tcp"
    assert shown["global"]["retry_count"] == 1
    daemon.lnetctl("lnet", "unconfigure")
    assert daemon.lnetctl("lnet", "configure", "--all").code == 0
    assert daemon.lnetctl("export", "--backup").out == backup
    daemon.stop()
    file.write_text(backup)
    assert start_daemon("--config", str(file)).lnetctl("export", "--backup").out == backup


def failed_start(tmp_path: Path, text: str | bytes, port: int) -> Done:
    file = tmp_path / "lnet.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    path = tmp_path / "lnetd.sock"
    process = lnetd("--socket", str(path), "--config", str(file), "--accept-port", str(port))
    out, err = process.communicate(timeout=PATIENCE)
    assert not path.exists()
    return Done(process.returncode, out, err.replace(str(file), "FILE"))


def test_a_startup_file_with_errors_starts_nothing_and_names_them_all(tmp_path: Path, port: int) -> None:
    text = CONFIG.replace("127.0.0.2@tcp", "192.0.2.1@tcp") + "    discovery: 7\n"
    done = failed_start(tmp_path, text, port)
    assert (done.code, done.out) == (1, "")
    assert 'net:\n      errno: -100\n      descr: ! "line 4: 192.0.2.1@tcp: ' in done.err
    assert 'descr: "line 9: discovery 7 is out of range: use 0 to 2"' in done.err
    assert done.err.endswith("lnetd: error: FILE: 2 errors; nothing is started\n")


def test_a_startup_file_that_cannot_be_read_leads_to_what_tells_more(tmp_path: Path, port: int) -> None:
    done = failed_start(tmp_path, CONFIG.replace("127.0.0.2@tcp", "192.0.2.1@tcp") + "globl: {}\n", port)
    assert (done.code, done.err.count("errno: ")) == (1, 1)
    assert done.err.endswith(
        "lnetd: error: FILE: 1 error; nothing is started, and no request was tried: "
        "`ulnet check --live FILE` tells what a node refuses as well\n"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nett: 1\n", "line 1: invalid key 'nett' in a file: did you mean 'net'?"),
        ("net: [\n", "line 2: this is not YAML"),
        (b"net: \xff\n", "FILE is not UTF-8 text"),
    ],
)
def test_a_startup_file_that_cannot_be_read_starts_nothing(
    tmp_path: Path, port: int, text: str | bytes, words: str
) -> None:
    done = failed_start(tmp_path, text, port)
    assert done.code == 1
    assert words in done.err


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--config", "/nonexistent.yaml"], 1, "/nonexistent.yaml cannot be read: No such file"),
        (["--accept-port", "0"], 1, "accept_port=0 is not a TCP port"),
        (["--accept-port-bulk", "0"], 1, "accept_port_bulk=0 is not a TCP port"),
        (["--socket", "/" + "x" * 200], 1, "at most 107 bytes"),
        (["--socket", "/dev/null/s"], 1, "cannot be made"),
        (["--accept", "some"], 2, "invalid choice: 'some'"),
        (["--drain", "-1"], 2, "give 0 to 3600 seconds"),
        (["--bogus"], 2, "unrecognized arguments: --bogus"),
    ],
)
def test_wrong_words_start_nothing(tmp_path: Path, words: list[str], code: int, text: str) -> None:
    process = lnetd("--socket", str(tmp_path / "s"), *words)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (code, "")
    assert text in err
    assert "Traceback" not in err
    assert not (tmp_path / "s").exists()


def test_lnetds_help_has_an_example() -> None:
    process = lnetd("--help")
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "example:\n  lnetd --config" in out
    for option in [
        "config",
        "socket",
        "log-level",
        "accept",
        "accept-port",
        "accept-port-bulk",
        "unconfigured",
        "drain",
        "version",
    ]:
        assert f"--{option}" in out


def test_systemds_journal_gets_priorities(start_daemon: Callable[..., Daemon]) -> None:
    daemon = start_daemon(JOURNAL_STREAM="8:1")
    assert daemon.first_lines[-1].startswith("<6>lnetd: info: ready")


def test_debug_tells_of_requests_and_connections_and_nothing_of_libraries(tmp_path: Path, port: int) -> None:
    daemon = Daemon(
        tmp_path / "socket", "--log-level", "debug", "--accept", "all", "--accept-port", str(port)
    )
    try:
        for nid in ("127.0.0.2@tcp", "127.0.0.3@tcp1"):
            assert daemon.lnetctl("net", "add", "--nid", nid).code == 0
        assert daemon.lnetctl("ping", "127.0.0.77@tcp").code != 0
        assert daemon.lnetctl("net", "del", "--net", "tcp9").code != 0
        told = [without_times(line) for line in daemon.stop().err.splitlines()]
    finally:
        daemon.end()
    assert any(line.startswith('lnetd: debug: request {"op":"net.add"') for line in told), told
    assert any(line.startswith("lnetd: debug: request refused: ") for line in told), told
    assert any("127.0.0.2@tcp: no connection with 12345-127.0.0.77@tcp: " in line for line in told), told
    assert all(line.startswith("lnetd: ") for line in told), "a time is in front of each"
    assert not any("NLMSG" in line or "marshal" in line for line in told), "libraries are quiet"


def test_bulk_may_have_a_port_of_its_own(tmp_path: Path, port: int) -> None:
    bulk = free_port()
    words = ("--accept", "all", "--accept-port", str(port), "--accept-port-bulk", str(bulk))
    daemon = Daemon(tmp_path / "lnetd.sock", *words)
    assert daemon.lnetctl("net", "add", "--nid", "127.0.0.1@tcp").code == 0
    for one in (port, bulk):
        socket.create_connection(("127.0.0.1", one), timeout=PATIENCE).close()
    assert daemon.stop().code == 0


def test_garbage_on_the_control_socket_harms_nobody(daemon: Daemon) -> None:
    for data in (b"GET / HTTP/1.0\r\n\r\n", b"uLNc\xff\xff\xff\xff", b"uLNc\4\0\0\0null", os.urandom(4096)):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(PATIENCE)
            client.connect(str(daemon.path))
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while client.recv(4096):
                pass
    assert daemon.lnetctl("net", "show") == (0, LO, "")


def test_the_service_manager_is_told(tmp_path: Path, port: int) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE)
        words = ("--accept", "all", "--accept-port", str(port))
        daemon = Daemon(tmp_path / "lnetd.sock", *words, NOTIFY_SOCKET=str(tmp_path / "notify"))
        assert manager.recv(100) == b"READY=1"
        assert daemon.lnetctl("net", "show").code == 0
        assert daemon.stop().code == 0
        assert manager.recv(100) == b"STOPPING=1"

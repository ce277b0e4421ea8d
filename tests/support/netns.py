"""Hosts for tests: network namespaces with several rails, joined by bridges in a namespace of their own.

Host N has on rail R the interface `railR` with 10.R.0.N/24 and fd00:R::N/64 (N from 1, R from 0). Needs root.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

_serial = itertools.count()
_PATIENCE = 60.0  # seconds for a program that must end or a capture that must begin
_BLOCK = 1.3  # seconds; tcpdump gets a block of packets that is not full after one
_PCAP_HEADER = 24  # bytes
_RECORD = struct.Struct("=4I")  # time, bytes in the file, bytes on the wire
_BURST, _LATENCY = "256kb", "50ms"
SHAPE = f"burst {_BURST} latency {_LATENCY}"  # of rails that have a rate, as benchmarks tell

Popen = subprocess.Popen[bytes]


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def _batch(namespace: str, lines: list[str]) -> None:
    command = ["ip", "-n", namespace, "-batch", "-"]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip in {namespace}: {done.stderr.strip()}")


@dataclass(slots=True)
class Host:
    """One namespace that stands for one machine."""

    name: str  # the namespace's name
    number: int  # N in its addresses, from 1
    rails: int
    _cluster: Cluster = field(repr=False)

    def address(self, rail: int = 0) -> str:
        """IPv4 address on a rail."""
        return f"10.{rail}.0.{self.number}"

    def address6(self, rail: int = 0) -> str:
        """IPv6 address on a rail."""
        return f"fd00:{rail}::{self.number}"

    def nid(self, rail: int = 0, net: str = "tcp") -> str:
        """The NID of the IPv4 address on a rail."""
        return f"{self.address(rail)}@{net}"

    @staticmethod
    def interface(rail: int = 0) -> str:
        """The interface of a rail."""
        return f"rail{rail}"

    def words(self, *command: str | Path) -> list[str]:
        """The command line that runs `command` in this host."""
        return ["ip", "netns", "exec", self.name, *map(str, command)]

    def run(
        self, *command: str | Path, timeout: float = 60, check: bool = True, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; its output is captured as text."""
        done = subprocess.run(
            self.words(*command), input=stdin, capture_output=True, text=True, timeout=timeout, check=False
        )
        if check and done.returncode:
            line = " ".join(map(str, command))
            raise AssertionError(f"{line!r} ended with {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def start(
        self,
        *command: str | Path,
        stdout: int | None = subprocess.PIPE,
        stderr: int | None = subprocess.PIPE,
        env: dict[str, str] | None = None,
        stdin: int | None = subprocess.DEVNULL,
    ) -> Popen:
        """Start a program; it is stopped at the latest with the cluster."""
        process = subprocess.Popen(self.words(*command), stdin=stdin, stdout=stdout, stderr=stderr, env=env)
        self._cluster.on_close(lambda: stop(process))
        return process

    def write(self, path: str, value: str) -> None:
        """Set a sysctl of this namespace, by its path below /proc/sys."""
        self.run("sh", "-c", 'printf %s "$1" > "/proc/sys/$2"', "sh", value, path)

    def set_link(self, rail: int, up: bool) -> None:
        """Take this host's own interface down or up (a pulled cable is `Cluster.set_cable`)."""
        _ip("-n", self.name, "link", "set", self.interface(rail), "up" if up else "down")
        if up:  # Linux forgets IPv6 addresses of an interface that goes down
            _batch(self.name, [f"address replace {self.address6(rail)}/64 dev {self.interface(rail)} nodad"])

    @contextmanager
    def capture(self, path: Path, interface: str = "any", packets: str = "tcp") -> Iterator[None]:
        """Write what passes `interface` to a pcap file; complete when the block ends."""
        if not shutil.which("tcpdump"):
            pytest.skip("tcpdump is not installed (Debian: apt-get install tcpdump)")
        # Not in immediate mode: there each packet takes a slot of the greatest length: 256 in all.
        words = ["tcpdump", "-Z", "root", "-n", "-U", "-B", "65536", "-i", interface]
        process = self.start(*words, "-w", path, packets, stdout=subprocess.DEVNULL)
        assert process.stderr is not None
        first = process.stderr.readline()
        while b"listening on" not in first:
            if not first:
                raise AssertionError(f"tcpdump did not start in {self.name}")
            first = process.stderr.readline()
        try:
            yield
        finally:
            ended, size = time.time(), -1  # where packets go on passing, the file is never at rest
            while size != (size := path.stat().st_size) and _last_packet(path) <= ended:
                time.sleep(_BLOCK)
            process.send_signal(signal.SIGINT)
            _, summary = process.communicate(timeout=_PATIENCE)
        lost = re.search(rb"(\d+) packets? dropped by kernel", summary)
        assert lost is not None, summary
        assert int(lost[1]) == 0, f"tcpdump lost packets, so the capture shows nothing: {summary.decode()}"


def _last_packet(path: Path) -> float:
    """When the last packet passed that is wholly in a capture (they are in order); 0 if there is none."""
    data = path.read_bytes()
    at, last = _PCAP_HEADER, 0.0
    while at + _RECORD.size <= len(data):
        seconds, microseconds, size, _ = _RECORD.unpack_from(data, at)
        at += _RECORD.size + size
        last = seconds + microseconds / 1e6
    return last


class Cluster:
    """Hosts × rails, and the bridges between them."""

    def __init__(self, hosts: int, rails: int, rate: str | Sequence[str] | None = None) -> None:
        """`rate` shapes every rail both ways (a tc rate such as 400mbit), or each rail with its own."""
        self._closing = ExitStack()
        tag = f"ulnet-{os.getpid()}-{next(_serial)}"
        self.switch = f"{tag}-switch"
        self.hosts = [Host(f"{tag}-host{n}", n, rails, self) for n in range(1, hosts + 1)]
        self.rails = rails
        try:
            self._build()
            if rate is not None:
                for rail in range(rails):
                    self.shape(rail, rate if isinstance(rate, str) else rate[rail])
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[Host]:
        return iter(self.hosts)

    def on_close(self, callback: Callable[[], object]) -> None:
        """Called before the namespaces go, the latest first."""
        self._closing.callback(callback)

    def close(self) -> None:
        """Stop what was started and remove the namespaces."""
        self._closing.close()

    def _add_namespace(self, name: str) -> None:
        _ip("netns", "add", name)
        self._closing.callback(subprocess.run, ["ip", "netns", "del", name], capture_output=True, check=False)

    def _build(self) -> None:
        self._add_namespace(self.switch)
        bridges = []
        for rail in range(self.rails):
            bridges += [f"link add br{rail} type bridge", f"link set br{rail} up"]
        _batch(self.switch, bridges)
        for host in self.hosts:
            self._add_namespace(host.name)
            lines = ["link set lo up"]
            for rail in range(self.rails):
                port = self.port(host, rail)
                lines += [
                    f"link add rail{rail} type veth peer name {port} netns {self.switch}",
                    f"address add {host.address(rail)}/24 dev rail{rail}",
                    f"address add {host.address6(rail)}/64 dev rail{rail} nodad",
                    f"link set rail{rail} up",
                ]
            _batch(host.name, lines)
            # The machine's default may be BBR, which paces a veth far below its rate.
            with suppress(AssertionError):
                host.write("net/ipv4/tcp_congestion_control", "reno")
        _batch(
            self.switch,
            [
                f"link set {self.port(host, rail)} master br{rail} up"
                for host in self.hosts
                for rail in range(self.rails)
            ],
        )

    @staticmethod
    def port(host: Host, rail: int) -> str:
        """The switch's end of a host's cable."""
        return f"h{host.number}r{rail}"

    def set_cable(self, host: Host, rail: int, plugged: bool) -> None:
        """Pull or plug a host's cable at the switch: the host sees its carrier go and come."""
        _ip("-n", self.switch, "link", "set", self.port(host, rail), "up" if plugged else "down")

    def set_path(self, host: Host, rail: int, through: bool) -> None:
        """Let packets of a host's cable pass the switch, or vanish there: its ends keep their carrier."""
        where = ["master", f"br{rail}"] if through else ["nomaster"]
        _ip("-n", self.switch, "link", "set", self.port(host, rail), *where)

    def shape(self, rail: int, rate: str, burst: str = _BURST) -> None:
        """Give a rail a rate, both ways; after a pause, `burst` passes at once."""
        words = f"root tbf rate {rate} burst {burst} latency {_LATENCY}".split()
        for host in self.hosts:
            host.run("tc", "qdisc", "replace", "dev", f"rail{rail}", *words)


def stop(process: Popen, how: signal.Signals = signal.SIGTERM) -> int:
    """End a program we started: politely, then not; its exit status."""
    if process.poll() is None:
        process.send_signal(how)
    try:
        process.communicate(timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
    return process.returncode


def why_no_namespaces() -> str | None:
    """Why this machine cannot make network namespaces; None if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not shutil.which("ip"):
        return "ip is not installed (Debian: apt-get install iproute2)"
    name = f"ulnet-{os.getpid()}-probe"
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"this machine gives no network namespaces: {done.stderr.strip()}"
    words = ["ip", "-n", name, "link", "add", "br0", "type", "bridge"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return f"no bridge in a network namespace here: {done.stderr.strip()}" if done.returncode else None


@pytest.fixture(scope="session")
def namespaces_work() -> None:
    """Skips where no network namespaces can be made."""
    if reason := why_no_namespaces():
        pytest.skip(reason)


@pytest.fixture
def make_cluster(namespaces_work: None) -> Iterator[Callable[..., Cluster]]:
    """A function that makes clusters: `make_cluster(hosts=2, rails=2, rate="400mbit")`."""
    with ExitStack() as stack:

        def make(hosts: int = 2, rails: int = 2, rate: str | Sequence[str] | None = None) -> Cluster:
            cluster = Cluster(hosts, rails, rate)
            stack.callback(cluster.close)
            return cluster

        yield make


@pytest.fixture
def two_hosts(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Two hosts with two rails."""
    return make_cluster(2, 2)


@pytest.fixture(scope="session")
def tshark() -> Callable[..., str]:
    """`tshark(file, *options)`: what tshark prints of a capture."""
    if not shutil.which("tshark"):
        pytest.skip("tshark is not installed (Debian: apt-get install tshark)")

    def run(path: Path, *options: str) -> str:
        done = subprocess.run(
            ["tshark", "-r", str(path), *options], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run

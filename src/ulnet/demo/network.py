"""Where the demo's two nodes live, how a rail between them is cut, and how it is repaired."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Protocol

__all__ = ["DemoError", "DemoNetwork", "Loopback", "Namespaces", "namespaces"]

_PORTS = range(20000, 32000)  # below those from which the system takes source ports


class DemoError(Exception):
    """The demo could not do its work; the text says why."""


class DemoNetwork(Protocol):
    """Two nodes, `rails` rails: the last one is the one that is cut."""

    port: int
    how: str  # what cutting means here

    @property
    def senders(self) -> list[str]:
        """The NIDs of the sending node, by rail."""

    @property
    def receivers(self) -> list[str]:
        """The NIDs of the receiving node."""

    def words(self, role: str) -> list[str]:
        """What to write before the command that runs a node."""

    def order(self, cut: bool) -> str | None:
        """What both nodes must be told so that the rail is cut or repaired."""

    def act(self, cut: bool) -> None:
        """What must be done from outside. Raises DemoError."""


class Loopback:
    """A loopback address a rail. Links cannot go down there, so fault rules stand in for that."""

    def __init__(self, rails: int) -> None:
        """Raises DemoError."""
        self.senders: list[str] = [f"127.0.{rail}.1@tcp" for rail in range(1, rails + 1)]
        self.receivers: list[str] = [f"127.0.{rail}.2@tcp" for rail in range(1, rails + 1)]
        self.port: int = _free_port([nid.partition("@")[0] for nid in (*self.senders, *self.receivers)])
        self.how = "fault rules on both nodes, as loopback has no link (--net cuts real ones)"

    def words(self, role: str) -> list[str]:
        """Nothing: both are processes of this machine."""
        return []

    def order(self, cut: bool) -> str | None:
        """The nodes do it themselves."""
        return "cut" if cut else "repair"

    def act(self, cut: bool) -> None:
        """Nothing."""


@dataclass(slots=True)
class Namespaces:
    """A network namespace a node, a veth pair a rail; a cut rail's link is down."""

    left: str
    right: str
    rails: int
    port: int = 988
    how: str = ""

    def __post_init__(self) -> None:
        self.how = f"`ip link set rail{self.rails - 1} down` in the sending node's network namespace"

    @property
    def senders(self) -> list[str]:
        """A net a rail: what is on one rail cannot reach the others."""
        return [f"10.77.{rail}.1@{_net(rail)}" for rail in range(self.rails)]

    @property
    def receivers(self) -> list[str]:
        """The other ends."""
        return [f"10.77.{rail}.2@{_net(rail)}" for rail in range(self.rails)]

    def words(self, role: str) -> list[str]:
        """Run it in its namespace."""
        return ["ip", "netns", "exec", self.left if role == "send" else self.right]

    def order(self, cut: bool) -> str | None:
        """The nodes find out by themselves."""
        return None

    def act(self, cut: bool) -> None:
        """Take the link down, or up."""
        _ip("-n", self.left, "link", "set", f"rail{self.rails - 1}", "down" if cut else "up")

    def build(self) -> None:
        """Make the rails. Raises DemoError."""
        for host in (self.left, self.right):
            _ip("-n", host, "link", "set", "lo", "up")
        for rail in range(self.rails):
            name = f"rail{rail}"
            _ip(*f"link add {name} netns {self.left} type veth peer name {name} netns {self.right}".split())
            for number, host in enumerate((self.left, self.right), 1):
                _ip("-n", host, "address", "add", f"10.77.{rail}.{number}/24", "dev", name)
                _ip("-n", host, "link", "set", name, "up")


@contextmanager
def namespaces(rails: int) -> Iterator[Namespaces]:
    """Two namespaces of the demo's own, removed afterwards. Raises DemoError."""
    if os.geteuid() != 0:
        raise DemoError("--net makes network namespaces, which needs root: run it as root, or without --net")
    if not shutil.which("ip"):
        raise DemoError("--net needs the command ip (Debian: apt-get install iproute2), or leave --net out")
    network = Namespaces(f"ulnet-demo-{os.getpid()}-left", f"ulnet-demo-{os.getpid()}-right", rails)
    with ExitStack() as stack:
        for host in (network.left, network.right):
            stack.callback(subprocess.run, ["ip", "netns", "del", host], capture_output=True, check=False)
            _ip("netns", "add", host)  # a signal may come at its end: it is removed all the same
        network.build()
        yield network


def _net(rail: int) -> str:
    return f"tcp{rail}" if rail else "tcp"


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise DemoError(f"'ip {' '.join(words)}' failed: {done.stderr.strip()}")


def _free_port(hosts: list[str]) -> int:
    """A TCP port that is free on all these addresses. Raises DemoError."""
    for port in random.sample(_PORTS, 50):
        with contextlib.ExitStack() as stack:
            try:
                for host in hosts:
                    stack.enter_context(socket.socket()).bind((host, port))
            except OSError:
                continue
            return port
    raise DemoError("no TCP port is free on all the demo's loopback addresses: end what uses so many")

"""Hosts with and without Multi-Rail in namespaces: the static use cases 1 and 2 of the documents."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from support import generation_node
from support.netns import Cluster, Host, stop

MANY = 12


class Program:
    """A node of one generation in a process of its own."""

    def __init__(self, host: Host, generation: str, *nids: str) -> None:
        words = [sys.executable, generation_node.__file__, generation, *nids]
        self.process = host.start(*words, stdin=subprocess.PIPE)
        assert self.answer() == "ready"

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, **command: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()
        return self.answer()


@pytest.fixture
def hosts(make_cluster: Callable[..., Cluster]) -> list[Host]:
    return list(make_cluster(hosts=2, rails=2))


@pytest.fixture
def start() -> Iterator[Callable[..., Program]]:
    with ExitStack() as stack:

        def start(host: Host, generation: str, *nids: str) -> Program:
            program = Program(host, generation, *nids)
            stack.callback(stop, program.process)
            return program

        yield start


@pytest.mark.requirement("bck-025", "bck-030", "dyn-035", "dyn-040")
def test_static_1_a_multi_rail_client_with_a_single_rail_server(
    hosts: list[Host], start: Callable[..., Program]
) -> None:
    """The server hears from one NID only, though two could reach it, and is never pushed to."""
    a, b = hosts
    server = start(b, "old", b.nid(0))
    client = start(a, "new", a.nid(0), a.nid(1))
    assert client.ask(put=b.nid(0), count=MANY) == "done"
    sources, count, dropped = server.ask(heard=True)
    assert (len(sources), count, dropped) == (1, MANY, 0)
    assert client.ask(peer=b.nid(0)) == [False, [b.nid(0)]]


@pytest.mark.requirement("bck-025", "bck-030", "dyn-055")
def test_static_2_a_multi_rail_server_with_a_single_rail_client(
    hosts: list[Host], start: Callable[..., Program]
) -> None:
    """Nobody asks the client anything until the server sends, which it does from the NI that was asked."""
    a, b = hosts
    server = start(b, "new", b.nid(0), b.nid(1))
    client = start(a, "old", a.nid(0))
    assert client.ask(put=b.nid(0), count=MANY) == "done"
    assert server.ask(heard=True) == [[a.nid(0)], MANY, 0]
    assert server.ask(put=a.nid(0), count=MANY) == "done"
    assert client.ask(heard=True) == [[b.nid(0)], MANY, 0]
    assert server.ask(peer=a.nid(0)) == [False, [a.nid(0)]]

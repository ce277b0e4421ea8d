"""Daemons for tests of the command line: each its own process and socket, all on one free port."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.daemon import Daemon
from support.ports import free_port
from support.vma import VmA


@pytest.fixture
def port() -> int:
    """A TCP port that is free now."""
    return free_port()


@pytest.fixture
def start_daemon(tmp_path: Path, port: int) -> Iterator[Callable[..., Daemon]]:
    """A function that starts daemons; all are gone after the test."""
    with ExitStack() as stack:

        def start(*words: str, name: str = "lnetd.sock", **more: str) -> Daemon:
            daemon = Daemon(tmp_path / name, "--accept", "all", "--accept-port", str(port), *words, **more)
            stack.callback(daemon.end)
            return daemon

        yield start


@pytest.fixture
def daemon(start_daemon: Callable[..., Daemon]) -> Daemon:
    """One daemon."""
    return start_daemon()


@pytest.fixture(scope="module")
def lasting_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon for all tests of a module that change nothing: starting one takes half a second of a CPU."""
    socket = tmp_path_factory.mktemp("lasting") / "lnetd.sock"
    started = Daemon(socket, "--accept", "all", "--accept-port", str(free_port()))
    yield started
    started.end()


@pytest.fixture
def vma(namespaces_work: None, tmp_path: Path) -> Iterator[Callable[..., VmA]]:
    """A function that starts the host of the transcripts, with an lnetd; it is gone after the test."""
    with ExitStack() as stack:

        def start(*words: str) -> VmA:
            host = VmA(tmp_path, *words)
            stack.callback(host.close)
            return host

        yield start

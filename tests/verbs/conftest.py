"""The bed of scripts/verbs_bed.py for these tests, which `make test-verbs` runs and nobody else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from verbs_bed import ROOT, Bed, Guest

RESULTS = ROOT / "build/verbs/results"
SOCKET = "/run/lnetd.sock"
SETTINGS = (f"PYTHONPATH={ROOT / 'src'}", f"ULNET_SOCKET={SOCKET}")
PYTHON = ("env", *SETTINGS, str(ROOT / ".venv/bin/python"))
collect_ignore_glob = [] if os.environ.get("ULNET_VERBS") else ["test_*.py"]


@pytest.fixture(scope="session")
def bed() -> Iterator[Bed]:
    """The guests, booted once."""
    made = Bed(RESULTS)
    print(f"verbs bed: two guests by {made.accelerator}")
    yield made
    made.close()


class Host:
    """A guest with a daemon."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.nids = [f"192.168.{110 + rail}.{guest.address}@o2ib{rail or ''}" for rail in (0, 1)]
        self.daemon = 0

    def begin(self, *rails: int) -> None:
        """Start lnetd, with these rails as NIs of nets of their own."""
        self.guest.run("rm", "-f", SOCKET)
        self.daemon = self.guest.start(*PYTHON, "-m", "ulnet.cli.lnetd", "--socket", SOCKET, "--selftest")
        wait = f"until [ -S {SOCKET} ]; do sleep 0.2; done"
        self.guest.ok("sh", "-c", wait, timeout=200)
        for rail in rails:
            self.lnetctl("net", "add", "--net", f"o2ib{rail or ''}", "--if", f"eth{rail}")

    def lnetctl(self, *words: str, timeout: float = 200.0) -> str:
        """A command to it, which must succeed."""
        return self.guest.ok(*PYTHON, "-m", "ulnet.cli.lnetctl", "--socket", SOCKET, *words, timeout=timeout)

    def until(self, words: tuple[str, ...], wanted: str, seconds: float = 120.0) -> str:
        """Wait until a command to it says that; what it says."""
        shown = ""
        for _ in range(int(seconds)):
            done = self.guest.run(*PYTHON, "-m", "ulnet.cli.lnetctl", "--socket", SOCKET, *words)
            shown = done.out + done.err
            if not done.code and wanted in shown:
                return shown
            self.guest.run("sleep", "1")
        raise AssertionError(f"no {wanted!r} in {seconds} s: {shown}\n{self.log}")

    @property
    def log(self) -> str:
        """What the daemon says."""
        return self.guest.written(self.daemon) if self.daemon else ""

    def end(self, sig: int = 15) -> None:
        """End the daemon."""
        if self.daemon:
            number, self.daemon = self.daemon, 0
            self.guest.kill(number, sig)


@pytest.fixture
def hosts(bed: Bed, request: pytest.FixtureRequest) -> Iterator[tuple[Host, Host]]:
    """Both, without an NI; what their daemons said is kept."""
    one, other = Host(bed.guests[0]), Host(bed.guests[1])
    yield one, other
    for host in (one, other):
        name = f"{request.node.name}-{host.guest.number}.log".replace("/", "-")
        Path(RESULTS, name).write_text(host.log)
        host.end()
        for rail in (0, 1):
            host.guest.set_cable(rail, True)
            host.guest.run("rdma", "link", "add", f"rxe{rail}", "type", "rxe", "netdev", f"eth{rail}")

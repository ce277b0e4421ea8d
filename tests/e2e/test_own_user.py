"""lnetd that has given up root: it works as before, and can do nothing else that root can."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.netns import Host

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="giving up root needs root")
PACKAGES = ("ulnet", "msgspec", "pyroute2", "yaml", "_yaml", "rich", "markdown_it", "mdurl", "pygments")
KEPT = (1 << 10) | (1 << 13)


@pytest.fixture(scope="module")
def everybodys() -> Iterator[tuple[str, Path]]:
    """An interpreter that every user may run, and a directory of root's with the packages for it."""
    python = os.path.realpath(sys.executable)
    if any(not os.stat(parent).st_mode & 0o001 for parent in Path(python).parents):
        python = f"/usr/bin/python3.{sys.version_info[1]}"
    directory = Path(tempfile.mkdtemp(prefix="ulnet-test-", dir="/run"))
    directory.chmod(0o755)
    try:
        for name in PACKAGES:
            spec = find_spec(name)
            if spec is not None and spec.submodule_search_locations:
                shutil.copytree(spec.submodule_search_locations[0], directory / name)
        yield python, directory
    finally:
        shutil.rmtree(directory)


@pytest.mark.pure
def test_a_daemon_without_root_listens_below_1024_and_answers(
    everybodys: tuple[str, Path], two_hosts: tuple[Host, Host]
) -> None:
    python, directory = everybodys
    left, right = two_hosts
    environment = f"PYTHONPATH={directory}"
    path = directory / "run" / "s"
    lnetd = ["env", "-C", "/", environment, python, "-m", "ulnet.cli.lnetd", "--socket", str(path)]
    daemon = left.start(*lnetd, "--user", "nobody", "--readers", "nogroup")
    try:
        patience = time.monotonic() + 60
        while not path.exists():
            assert daemon.poll() is None and time.monotonic() < patience
            time.sleep(0.05)
        status = Path(f"/proc/{daemon.pid}/status").read_text()
        told = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        nobody = pwd.getpwnam("nobody").pw_uid
        assert told["Uid"].split() == [str(nobody)] * 4
        assert {int(told[name], 16) for name in ("CapPrm", "CapEff", "CapBnd")} == {KEPT}
        assert told["NoNewPrivs"] == "1"

        def lnetctl(*words: str) -> subprocess.CompletedProcess[str]:
            return left.run("env", environment, python, "-m", "ulnet.cli.lnetctl", "--socket", path, *words)

        lnetctl("net", "add", "--net", "tcp", "--if", left.interface(0))
        assert "988" in left.run("ss", "-Htln").stdout
        ping = right.run(sys.executable, "-m", "ulnet", "ping", "--timeout", "20", f"{left.address(0)}@tcp")
        assert left.address(0) in ping.stdout
    finally:
        daemon.terminate()
        daemon.wait()


@pytest.mark.pure
def test_a_python_that_the_user_may_not_read_is_told(everybodys: tuple[str, Path]) -> None:
    """As where ulnet is in a venv of root's, below /root."""
    python, directory = everybodys
    words = ["env", "-C", "/", f"PYTHONPATH={directory}", python, "-m", "ulnet.cli.lnetd", "--user", "nobody"]
    directory.chmod(0o700)
    try:
        done = subprocess.run(
            [*words, "--socket", "/run/ulnet-test-unread/s"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        directory.chmod(0o755)
        Path("/run/ulnet-test-unread").rmdir()
    assert done.returncode == 1
    assert f"user nobody may not read {directory}" in done.stderr
    assert "Traceback" not in done.stderr

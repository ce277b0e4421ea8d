"""An installed ulnet, looked at from outside: each file in its place, each command, a ping between two nodes.

`check` takes the prefix of a venv (or of a system: /usr), and the checkout that the package was made from.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["WheelError", "check", "installed_files"]

COMMANDS = ("ulnet", "lnetctl", "lnetd", "lst")
PATIENCE = 60.0  # seconds for each program

# Where each folder's files are below the prefix.
PLACES = {
    "docs/man/man1": "share/man/man1",
    "docs/man/man8": "share/man/man8",
    "packaging/systemd": "share/ulnet",
    "packaging/lnet.conf": "share/ulnet/lnet.conf",
}
COMPLETIONS = {
    "lnetctl.bash": "share/bash-completion/completions/lnetctl",
    "ulnet.bash": "share/bash-completion/completions/ulnet",
    "lst.bash": "share/bash-completion/completions/lst",
    "_lnetctl": "share/zsh/site-functions/_lnetctl",
}

# Addresses of loopback that no other process takes: the process's ID is in them.
PING = """
import asyncio, os
from ulnet import Node, TcpParams

def new_node():
    return Node(tcp=TcpParams(accept="all", accept_port=9880, reserved_ports=False))

async def main():
    low = os.getpid()
    tail = f"{low >> 8 & 255}.{low & 255}@tcp"
    first, second = (f"127.{top + (low >> 16)}.{tail}" for top in (64, 128))
    async with new_node() as a, new_node() as b:
        a.add_ni(first)
        b.add_ni(second)
        print(first in map(str, (await b.ping(first)).nids))

asyncio.run(main())
"""
WHERE = "import ulnet.core.msg as m; print(m.__file__)"


class WheelError(Exception):
    """What is wrong with a wheel, or with the building of one."""


def check(prefix: Path, checkout: Path, compiled: bool) -> str:
    """Raise `WheelError` unless all of ulnet is installed below this prefix, and works; what was seen."""
    files = 0
    for source, place in installed_files(checkout):
        installed = prefix / place
        if not installed.is_file():
            raise WheelError(f"{place} is not installed ({source.relative_to(checkout)})")
        if installed.read_bytes() != source.read_bytes():
            raise WheelError(f"{place} differs from {source.relative_to(checkout)}")
        files += 1
    version = re.search(r'__version__ = "(.+)"', (checkout / "src/ulnet/__init__.py").read_text())
    assert version is not None
    for command in COMMANDS:
        told = _run(prefix / "bin" / command, "--version")
        if version[1] not in told.split():
            raise WheelError(f"`{command} --version` says {told.strip()!r}, and it should be {version[1]}")
    where = _python(prefix, WHERE)
    if where.endswith(".so") != compiled or not Path(where).is_relative_to(prefix):
        should = "compiled" if compiled else "Python"
        raise WheelError(f"ulnet.core.msg is {where}, and should be {should} below {prefix}")
    if _python(prefix, PING) != "True":
        raise WheelError("a ping between two nodes gave another answer than their NIDs")
    _ask_a_daemon(prefix)
    what = "compiled core" if compiled else "core in Python"
    return (
        f"{len(COMMANDS)} commands {version[1]}, {files} files, {what}, ping of two nodes, lnetd and lnetctl"
    )


def installed_files(checkout: Path) -> Iterator[tuple[Path, str]]:
    """Each file that comes beside the package, and its place below the prefix."""
    for name, place in PLACES.items():
        source = checkout / name
        if source.is_dir():
            for file in sorted(source.iterdir()):
                yield file, f"{place}/{file.name}"
        else:
            yield source, place
    for file in sorted((checkout / "packaging/completions").iterdir()):
        yield file, COMPLETIONS[file.name]


def _ask_a_daemon(prefix: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/lnetd.sock"
        with subprocess.Popen(
            [prefix / "bin/lnetd", "--socket", path], env=_environment(), stderr=subprocess.PIPE, text=True
        ) as daemon:
            assert daemon.stderr is not None
            lines = []
            try:
                for line in daemon.stderr:
                    lines.append(line)
                    if "ready" in line:
                        break
                else:
                    raise WheelError(f"lnetd did not start: {''.join(lines)}")
                told = _run(prefix / "bin/lnetctl", "--socket", path, "ping", "0@lo")
            finally:
                daemon.terminate()
                lines += daemon.communicate(timeout=PATIENCE)[1].splitlines(keepends=True)
        if "0@lo" not in told or daemon.returncode != 0:
            raise WheelError(
                f"lnetctl ping 0@lo says {told!r}; lnetd ended with {daemon.returncode}: {''.join(lines)}"
            )


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ULNET_"))}


def _python(prefix: Path, program: str) -> str:
    return _run(prefix / "bin/python", "-I", "-c", program).strip()


def _run(*words: str | Path) -> str:
    try:
        done = subprocess.run(
            words, env=_environment(), capture_output=True, text=True, timeout=PATIENCE, check=False, cwd="/"
        )
    except OSError as error:
        raise WheelError(f"{words[0]}: {os.strerror(error.errno or 0)}") from None
    if done.returncode:
        raise WheelError(
            f"{' '.join(map(str, words))[:200]} ended with {done.returncode}: {done.stderr.strip()}"
        )
    return done.stdout

"""packaging/Containerfile, built, run and stopped by Podman: `make container-trial`. Needs root.

The base image is made with debootstrap, so no registry is asked. Two containers are started in network
namespaces with a cable between them, as the file's first lines say, and ping each other. A step that finds
something wrong ends the run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from compiled import ROOT
from install_trial import (
    CAPABILITIES,
    CONFIG,
    SUITE,
    TrialError,
    expect,
    expect_in,
    namespaces,
    require,
    run,
    wait,
)

NEEDED = {"debootstrap": "debootstrap", "podman": "podman", "runc": "runc", "ip": "iproute2"}
BASE, IMAGE = "localhost/ulnet-trial-base", "localhost/ulnet-trial"
# Podman's own limits may be above those of who calls it, which only the initial user may raise.
LIMITS = ("--ulimit", "nofile=1024:4096", "--ulimit", "nproc=1024:1024")
RIGHTS = ("--cap-drop", "all", "--cap-add", "net_bind_service,net_raw")


class Podman:
    """Podman with images and containers in a folder of its own, not among those of the machine.

    runc also runs where the machine has both versions of control groups, which crun refuses.
    """

    def __init__(self, folder: Path) -> None:
        kept = ("--root", str(folder / "storage"), "--runroot", str(folder / "run"))
        self._words = ("podman", "--runtime", "runc", *kept)

    def __call__(self, *words: str) -> str:
        """Run a command of Podman: what it said."""
        return run(*self._words, *words)

    def logs(self, name: str) -> str:
        """What a container has said."""
        words = (*self._words, "logs", name)
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        return done.stdout + done.stderr


def main(arguments: list[str] | None = None) -> int:
    """Try the container file of this checkout."""
    parser = argparse.ArgumentParser(
        description="Build the container file with Podman, and use what it makes."
    )
    parser.add_argument("--base", type=Path, help="a root of debootstrap to use, in place of a new one")
    options = parser.parse_args(arguments)
    try:
        require(NEEDED)
        with tempfile.TemporaryDirectory() as folder:
            podman = Podman(Path(folder))
            try:
                build(podman, options.base or make_base(Path(folder, "base")), Path(folder, "base.tar"))
                two_nodes(podman, Path(folder))
                refused(podman, Path(folder))
            finally:
                with suppress(TrialError):  # what went wrong before is told
                    podman("rmi", "--all", "--force")
    except (TrialError, subprocess.SubprocessError) as error:
        print(f"container-trial: {error}", file=sys.stderr)
        return 1
    print("container-trial: all of it is as it should be")
    return 0


def make_base(base: Path) -> Path:
    """A minimal Debian, as the images of Debian are."""
    run("debootstrap", "--variant=minbase", SUITE, str(base))
    return base


def build(podman: Podman, base: Path, archive: Path) -> None:
    """Make the image; pip in there believes the certificates that pip believes here."""
    run("tar", "-C", str(base), "-cf", str(archive), ".")
    podman("import", str(archive), BASE)
    words = [
        "build",
        "--layers=false",
        "--isolation",
        "chroot",
        "--network",
        "host",
        "--build-arg",
        f"BASE={BASE}",
        "-t",
        IMAGE,
    ]
    if believed := os.environ.get("PIP_CERT"):
        (archive.parent / "pip.conf").write_text("[global]\ncert = /mnt/ca.crt\n")
        words += [
            "-v",
            f"{Path(believed).resolve()}:/mnt/ca.crt:ro",
            "-v",
            f"{archive.parent / 'pip.conf'}:/etc/pip.conf:ro",
        ]
    began = time.monotonic()
    podman(*words, "-f", str(ROOT / "packaging/Containerfile"), str(ROOT))
    tell(f"built in {time.monotonic() - began:.0f} s")


def two_nodes(podman: Podman, folder: Path) -> None:
    """Two containers that ping each other, and their end."""
    (folder / "lnet.conf").write_text(CONFIG)
    with (
        namespaces() as sides,
        container(podman, sides[0], folder) as here,
        container(podman, sides[1], folder) as there,
    ):
        for name in (here, there):
            wait(f"{name} to be ready", partial(is_ready, podman, name))
        for name, other in ((here, "10.0.0.2@tcp"), (there, "10.0.0.1@tcp")):
            said = podman("exec", name, "lnetctl", "ping", other)
            expect_in("lnetctl ping", f"primary nid: {other}", said)
        said = podman("exec", here, "lnetctl", "discover", "10.0.0.2@tcp")
        expect_in("lnetctl discover", "Multi-Rail: true", said)
        status = podman("exec", here, "cat", "/proc/1/status")
        lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        for name in ("CapEff", "CapBnd"):
            expect(name, int(lines[name], 16), CAPABILITIES)
        tell("two containers ping and discover each other; lnetd has two capabilities")
        podman("stop", here)
        expect("exit status", podman("wait", here).strip(), "0")
        expect_in("log", "lnetd: info: stopped", podman.logs(here))
        tell("stopped: lnetd ended by itself, with status 0")


def is_ready(podman: Podman, name: str) -> bool:
    """Whether lnetd is up in a container."""
    return "ready: LNet is up" in podman.logs(name)


def refused(podman: Podman, folder: Path) -> None:
    """A file with a mistake: nothing is started, and the log says why."""
    (folder / "lnet.conf").write_text(CONFIG.replace("tcp", "tcpx"))
    with namespaces() as (side, _other), container(podman, side, folder) as name:
        expect("exit status", podman("wait", name).strip(), "1")
        expect_in("log", "net 'tcpx'", podman.logs(name))
    tell("a file with a mistake: status 1, and the log names the net")


@contextmanager
def container(podman: Podman, namespace: str, folder: Path) -> Iterator[str]:
    """A container of the image in a network namespace, with a folder's lnet.conf; its name."""
    name = f"ulnet-{namespace}"
    config = ("-v", f"{folder / 'lnet.conf'}:/etc/lnet.conf:ro")
    network = ("--network", f"ns:/run/netns/{namespace}")
    podman("run", "-d", "--name", name, *network, *RIGHTS, *LIMITS, *config, IMAGE)
    try:
        yield name
    except TrialError as error:
        raise TrialError(f"{error}\nThe container's log:\n{podman.logs(name)[-3000:]}") from None
    finally:
        with suppress(TrialError):
            podman("rm", "--force", name)


def tell(sentence: str) -> None:
    """Say how far the trial is."""
    print(f"container-trial: {sentence}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())

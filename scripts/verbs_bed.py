"""Two emulated guests with two soft-RoCE devices each, joined rail by rail: o2ib on real verbs.

All comes from Debian's packages: the kernel with rdma_rxe, QEMU, rdma-core. A guest sees the files of this
host, read only, under a layer of memory of its own, so nothing is installed anywhere. An agent in it runs
what it is told over a virtio port. `make test-verbs` runs tests/verbs on it; this file, run as a script,
prepares all that it needs, or tells what is missing.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["RAILS", "Bed", "Done", "Guest", "missing", "prepare"]

ROOT: Final = Path(__file__).resolve().parent.parent
WHERE: Final = ROOT / "build/verbs"
PACKAGES: Final = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "depmod": "kmod",
    "rdma": "iproute2",
    "ibv_devices": "ibverbs-utils",
    "/usr/lib/x86_64-linux-gnu/librdmacm.so.1": "librdmacm1",
    "/etc/libibverbs.d/rxe.driver": "ibverbs-providers",
    "/usr/lib/python3/dist-packages/pyverbs": "python3-pyverbs",
    "/usr/include/infiniband/verbs.h": "libibverbs-dev",
    "/usr/include/rdma/rdma_cma.h": "librdmacm-dev",
    "gcc": "gcc",
}
RAILS: Final = ("192.168.110", "192.168.111")
_KERNEL: Final = "linux-image-amd64"
_FIRST: Final = ("virtio_pci", "9pnet_virtio", "9p", "overlay")  # modules until the host's files are there
_ACCELERATORS: Final = {"kvm": "host,-arch-capabilities", "tcg": "max"}
_PROBE_SECONDS: Final = 40.0
_BOOT_SECONDS: Final = 420.0
_INIT: Final = """#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /proc /sys /dev /low /up /root
$b mount -t proc proc /proc; $b mount -t sysfs sys /sys; $b mount -t devtmpfs dev /dev
for m in $($b cat /modules); do $b insmod /m/$m; done
$b mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 root /low
$b mount -t tmpfs up /up
$b mkdir /up/u /up/w
$b mount -t overlay -o lowerdir=/low,upperdir=/up/u,workdir=/up/w over /root
for d in proc sys dev; do $b mount --move /$d /root/$d; done
$b mount -t tmpfs run /root/run; $b mkdir -p /root/dev/shm /root/dev/pts
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
exec $b switch_root /root {python} {agent} {number}
"""


def missing() -> list[str]:
    """The Debian packages that the bed needs and this host does not have."""
    lacking = {
        package
        for what, package in PACKAGES.items()
        if not (Path(what).exists() if what.startswith("/") else shutil.which(what, path=_path()))
    }
    return sorted(lacking)


def _path() -> str:
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def prepare() -> str:
    """Install and download what is missing, where that may be done; what is still missing, in a sentence."""
    lacking = missing()
    if lacking and os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"verbs bed: apt-get install {' '.join(lacking)}", flush=True)
        _apt("apt-get", "update", "-qq")
        _apt("apt-get", "install", "-y", "-qq", "--no-install-recommends", *lacking)
        lacking = missing()
    if lacking:
        return f"the bed needs Debian's packages {', '.join(lacking)} (apt-get install, as root)"
    if _release() is None and not _download():
        return f"the bed needs Debian's kernel ({_KERNEL}), which apt-get cannot download here"
    return ""


def _apt(*words: str) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(words, env=environment, capture_output=True, check=False).returncode == 0


def _release() -> str | None:
    """The release of the kernel that is unpacked."""
    found = sorted((WHERE / "kernel/lib/modules").glob("*/modules.dep"))
    return found[-1].parent.name if found else None


def _download() -> bool:
    told = subprocess.run(("apt-cache", "depends", _KERNEL), capture_output=True, text=True, check=False)
    named = re.search(r"Depends: (linux-image-\S+)", told.stdout)
    if named is None:
        return False
    WHERE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        download = ("apt-get", "download", "-qq", named[1])
        if subprocess.run(download, cwd=folder, capture_output=True, check=False).returncode:
            return False
        (package,) = Path(folder).glob("*.deb")
        subprocess.run(("dpkg-deb", "-x", str(package), str(WHERE / "kernel")), check=True)
    (modules,) = (WHERE / "kernel/lib/modules").iterdir()
    depmod = ("depmod", "-b", str(WHERE / "kernel"), modules.name)
    subprocess.run(depmod, env={**os.environ, "PATH": _path()}, check=True)
    return True


def _modules(release: str, names: Sequence[str]) -> list[Path]:
    """The files of modules, each behind those that it needs."""
    found: dict[Path, None] = {}
    for name in names:
        words = ("modprobe", "-d", str(WHERE / "kernel"), "-S", release, "--show-depends", name)
        told = subprocess.run(
            words, env={**os.environ, "PATH": _path()}, capture_output=True, text=True, check=True
        )
        for line in told.stdout.splitlines():
            if line.startswith("insmod "):
                found[Path(line.split()[1])] = None
    return list(found)


def _archive(files: dict[str, tuple[int, bytes]]) -> bytes:
    """A cpio archive, as the kernel unpacks it."""
    out = bytearray()
    for number, (name, (mode, data)) in enumerate([*files.items(), ("TRAILER!!!", (0, b""))], 1):
        path = name.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
        out += b"070701" + b"".join(b"%08X" % field for field in fields) + path
        out += bytes(-len(out) % 4) + data
        out += bytes(-len(out) % 4)
    return bytes(out)


def _initial_files(release: str, number: int) -> bytes:
    folder, program = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o755
    modules = _modules(release, _FIRST)
    busybox = shutil.which("busybox")
    assert busybox is not None
    init = _INIT.format(python="/usr/bin/python3", agent=ROOT / "scripts/verbs_agent.py", number=number)
    files = {"bin": (folder, b""), "m": (folder, b""), "bin/busybox": (program, Path(busybox).read_bytes())}
    files["init"] = (program, init.encode())
    files["modules"] = (program, " ".join(module.name for module in modules).encode())
    files |= {f"m/{module.name}": (program, module.read_bytes()) for module in modules}
    return _archive(files)


@dataclass
class Done:
    """A command that ended."""

    code: int
    out: str
    err: str


class Guest:
    """An emulated host; `address` has its last octet. It is told what to run by `run` and `start`."""

    def __init__(self, bed: Path, number: int, accelerator: str, console: Path) -> None:
        self.number = number
        self.address = 10 + number
        self._serial = 0
        release = _release()
        assert release is not None
        image = bed / f"init{number}"
        image.write_bytes(_initial_files(release, number))
        ends = ("server=on", "server=off")[number - 1]
        words = [
            "qemu-system-x86_64",
            "-accel",
            accelerator,
            "-cpu",
            _ACCELERATORS[accelerator],
            "-m",
            "1536",
        ]
        words += ["-smp", "1", "-display", "none", "-no-reboot", "-serial", f"file:{console}"]
        words += ["-kernel", str(next((WHERE / "kernel/boot").glob("vmlinuz-*"))), "-initrd", str(image)]
        words += ["-append", "console=ttyS0 panic=-1 quiet mitigations=off"]
        share = "local,path=/,mount_tag=root,security_model=passthrough,readonly=on,multidevs=remap"
        words += ["-virtfs", share]
        words += ["-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name=agent"]
        words += ["-chardev", f"socket,id=agent,path={bed}/agent{number},server=on,wait=off"]
        words += ["-qmp", f"unix:{bed}/qmp{number},server=on,wait=off"]
        for rail in range(len(RAILS)):
            words += ["-netdev", f"stream,id=rail{rail},{ends},addr.type=unix,addr.path={bed}/rail{rail}"]
            mac = f"52:54:00:00:{rail:02x}:{number:02x}"
            words += ["-device", f"virtio-net-pci,netdev=rail{rail},mac={mac},id=eth{rail},romfile="]
        self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self._agent = self._connect(bed / f"agent{number}")
        self._lines = self._agent.makefile("rw", encoding="utf-8")
        with self._connect(bed / f"qmp{number}") as monitor:
            self._qmp = monitor.makefile("rw", encoding="utf-8")
        self._qmp.readline()
        self._monitor("qmp_capabilities")

    def _connect(self, path: Path) -> socket.socket:
        until = time.monotonic() + 30
        while True:
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.connect(str(path))
                return sock
            except OSError:
                sock.close()
                if self._process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"QEMU: {self._why()}") from None
                time.sleep(0.1)

    def _why(self) -> str:
        self._process.kill()
        return self._process.communicate()[1].strip() or "it does not answer"

    def wait(self, seconds: float) -> bool:
        """Wait until the agent speaks; False if it does not."""
        self._agent.settimeout(seconds)
        try:
            return json.loads(self._lines.readline() or "{}").get("ready") is True
        except (TimeoutError, json.JSONDecodeError):
            return False
        finally:
            self._agent.settimeout(None)

    def ask(self, **request: Any) -> dict[str, Any]:
        """Have the agent do something."""
        self._lines.write(json.dumps(request) + "\n")
        self._lines.flush()
        line = self._lines.readline()
        if not line:
            raise RuntimeError(f"guest {self.number} is gone: {self._why()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def run(self, *words: str, timeout: float = 120.0) -> Done:
        """Run a command to its end, or for so many seconds."""
        answer = self.ask(op="run", words=words, timeout=timeout)
        return Done(answer["code"], answer["out"], answer["err"])

    def ok(self, *words: str, timeout: float = 120.0) -> str:
        """What a command writes that must succeed."""
        done = self.run(*words, timeout=timeout)
        assert done.code == 0, f"{' '.join(words)}: {done.code}\n{done.out}\n{done.err}"
        return done.out

    def start(self, *words: str) -> int:
        """Start a command; its number."""
        number: int = self.ask(op="start", words=words)["pid"]
        return number

    def kill(self, number: int, sig: int = 9) -> None:
        """Send a signal to what `start` gave, and reap it."""
        self.ask(op="kill", pid=number, signal=sig)

    def written(self, number: int) -> str:
        """What a started command has written so far."""
        text: str = self.ask(op="written", pid=number)["text"]
        return text

    def write(self, path: str, text: str) -> None:
        """Put a file there."""
        self.ask(op="write", path=path, data=base64.b64encode(text.encode()).decode())

    def set_cable(self, rail: int, plugged: bool) -> None:
        """Pull a cable on its side, or put it back."""
        self._monitor("set_link", name=f"eth{rail}", up=plugged)

    def power_off(self) -> None:
        """It loses its power."""
        self._process.kill()
        self._process.communicate()

    def _monitor(self, command: str, **arguments: Any) -> None:
        self._qmp.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self._qmp.flush()
        while "return" not in (answer := json.loads(self._qmp.readline())):
            if "error" in answer:
                raise RuntimeError(f"QEMU: {answer['error']}")

    def close(self) -> None:
        """Power off, and forget."""
        for end in (self._lines, self._agent, self._qmp):
            with suppress(OSError):
                end.close()
        self.power_off()


class Bed:
    """The guests. Raises RuntimeError where they do not boot."""

    def __init__(self, results: Path) -> None:
        self.results = results
        results.mkdir(parents=True, exist_ok=True)
        self._folder = tempfile.TemporaryDirectory(prefix="ulnet-verbs-")
        self.accelerator = self._choose()
        self.guests: list[Guest] = []
        try:
            for number in (1, 2):
                self.guests.append(self._boot(number, self.accelerator))
            for guest in self.guests:
                if not guest.wait(_BOOT_SECONDS):
                    console = self._console(guest.number)
                    raise RuntimeError(f"guest {guest.number} does not boot: see {console}")
        except BaseException:
            self.close()
            raise

    def _console(self, number: int) -> Path:
        return self.results / f"console{number}.txt"

    def _boot(self, number: int, accelerator: str) -> Guest:
        return Guest(Path(self._folder.name), number, accelerator, self._console(number))

    def _choose(self) -> str:
        """KVM, if a guest boots with it: in other virtual machines it may seem to be there, and hang."""
        wanted = os.environ.get("ULNET_VERBS_ACCEL")
        if wanted:
            return wanted
        if not os.access("/dev/kvm", os.R_OK | os.W_OK):
            return "tcg"
        with suppress(RuntimeError):
            guest = self._boot(1, "kvm")
            works = guest.wait(_PROBE_SECONDS)
            guest.close()
            if works:
                return "kvm"
        for left in Path(self._folder.name).iterdir():
            left.unlink()
        return "tcg"

    def close(self) -> None:
        """End the guests."""
        for guest in self.guests:
            guest.close()
        self._folder.cleanup()


def main() -> int:
    """Prepare the bed, or say what is missing."""
    lacking = prepare()
    if lacking:
        print(f"verbs bed: {lacking}", file=sys.stderr)
        return 1
    print(f"verbs bed: ready, with kernel {_release()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

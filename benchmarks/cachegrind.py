"""Instructions and cache misses of a program under valgrind, where there are no counters of the CPU's own.

The second cache is as large as that of a core of most CPUs (1 MiB): what misses it comes from far.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

HEADS = "instructions {0} | I1 misses | D1 misses | misses of 1 MiB"
_CACHES = ("--I1=32768,8,64", "--D1=32768,8,64", "--LL=1048576,16,64")
_COUNT = re.compile(r"(I +refs|I1 +misses|D1 +misses|LL +misses): +([\d,]+)")


def counted(script: str, *words: str) -> list[int]:
    """The number that the script prints, its instructions and misses. Raises RuntimeError with its words."""
    valgrind = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=/dev/null"]
    done = subprocess.run(
        [*valgrind, *_CACHES, sys.executable, script, *words],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    found = dict(_COUNT.findall(done.stderr))
    return [int(done.stdout), *(int(count.replace(",", "")) for count in found.values())]


def need_valgrind() -> None:
    """End the program without it."""
    if not shutil.which("valgrind"):
        sys.exit("no valgrind here (Debian: apt-get install valgrind)")

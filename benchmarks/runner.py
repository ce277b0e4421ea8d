"""Runs one competitor on one work: two processes, their figures added up."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from players import COMPILED, HERE, Competitor
from work import Work, cpu_of

PATIENCE = 180.0  # seconds for one run
# Over tcp as the others, and two ranks that may share a machine.
MPIRUN = (
    "mpirun -np 2 --allow-run-as-root --oversubscribe --bind-to none "
    "--host localhost:2 --mca pml ob1 --mca btl tcp,self"
)
MPIRUN_LOOPBACK = ["--mca", "btl_tcp_if_include", "lo", "--mca", "oob_tcp_if_include", "lo"]


@dataclass(slots=True)
class Run:
    """One run's figures; `cpu` is that of both processes."""

    count: int  # messages
    wall: float
    cpu: float
    p50_us: float
    p99_us: float


def run_once(competitor: Competitor, work: Work, profiles: Path | None = None) -> Run:
    """One run, profiled into a folder if one is given. Raises RuntimeError with the program's own words."""
    more = {} if profiles is None else {"ULNET_BENCH_PROFILES": str(profiles)}
    sides = run_sides(competitor, work, more)
    drive, serve = sides["drive"], sides["serve"]
    return Run(work.count, drive["wall"], drive["cpu"] + serve["cpu"], drive["p50_us"], drive["p99_us"])


def run_sides(competitor: Competitor, work: Work, more: dict[str, str]) -> dict[str, dict[str, float]]:
    """One run: what each side measured (`work.Measured`); `more` is for their environment. As `run_once`."""
    environment = {**environment_of(competitor.build), **more}
    if competitor.name == "mpi":
        words = [*MPIRUN.split(), *MPIRUN_LOOPBACK, *words_of(competitor, "pair", work)]
        output = _finish(_start(words, environment))
    else:
        with _start(words_of(competitor, "serve", work), environment) as server:
            assert server.stdout is not None
            try:
                address = json.loads(server.stdout.readline() or "{}").get("address", "")
                if not address:
                    _finish(server)
                output = _finish(_start([*words_of(competitor, "drive", work), address], environment))
                output += _finish(server)
            finally:
                server.kill()
    return {side: values for line in output.splitlines() for side, values in json.loads(line).items()}


def environment_of(build: str) -> dict[str, str]:
    """For a Python that is to import that build of ulnet."""
    place = COMPILED if build == "compiled" else HERE.parent / "src"
    return {**os.environ, "PYTHONPATH": str(place), "ULNET_BENCH_BUILD": build}


def words_of(competitor: Competitor, role: str, work: Work) -> list[str]:
    """The command line of one side."""
    if competitor.name != "c":
        return [
            sys.executable,
            str(HERE / "peer.py"),
            competitor.module or competitor.name,
            role,
            work.to_json(),
        ]
    numbers = (work.size, work.count, work.warmup, work.window, cpu_of(work, role == "drive"))
    return [str(_reference()), role, work.kind, *map(str, numbers)]


@cache
def _reference() -> Path:
    """The C program, compiled once a run of the benchmark."""
    program = Path(tempfile.gettempdir(), f"ulnet-reference-{os.getpid()}")
    words = ["cc", "-O2", "-o", str(program), str(HERE / "competitors/reference.c")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the C program was not compiled: {done.stderr.strip()}")
    atexit.register(program.unlink, missing_ok=True)
    return program


def _start(words: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env=environment)


def _finish(process: subprocess.Popen[str]) -> str:
    try:
        output, errors = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise RuntimeError(f"no end after {PATIENCE:.0f} s") from None
    if process.returncode or not output:
        raise RuntimeError(errors.strip() or f"exit status {process.returncode}")
    return output

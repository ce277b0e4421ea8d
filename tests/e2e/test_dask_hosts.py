"""A Dask cluster over two rails, one of which is cut while a computation moves its data."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.netns import Cluster, Host, Popen

pytestmark = pytest.mark.requirement("ULP")

JOB = Path(__file__).resolve().parents[2] / "benchmarks/dask_job.py"
SIDE = 2048  # 32 MiB
NETWORKS = "tcp(rail0),tcp1(rail1)"
DASK = (sys.executable, "-m", "dask")


def start(host: Host, *words: str | Path) -> Popen:
    environment = {**os.environ, "DASK_DISTRIBUTED__COMM__ULNET__NETWORKS": NETWORKS}
    return host.start(*words, env=environment, stderr=None)


def sent_by(host: Host, rail: int) -> int:
    return int(host.run("cat", f"/sys/class/net/{host.interface(rail)}/statistics/tx_bytes").stdout)


def test_a_rail_is_cut_in_a_shuffle(make_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = make_cluster(4, 2, "100mbit")
    scheduler, first, second, client = cluster
    address = f"ulnet://{scheduler.address()}:8786"
    words = ["--protocol", "ulnet", "--no-dashboard"]
    start(scheduler, *DASK, "scheduler", *words, "--host", scheduler.address(), "--port", "8786")
    for host in (first, second):
        folder = tmp_path / host.name
        folder.mkdir()
        start(
            host,
            *DASK,
            "worker",
            address,
            *words,
            "--no-nanny",
            "--nthreads",
            "1",
            "--local-directory",
            folder,
        )
    job = start(client, sys.executable, JOB, address, str(SIDE), "3", "2")
    assert job.stdout is not None
    assert job.stdout.readline() == b"ready\n"
    before = [sent_by(first, rail) for rail in (0, 1)]
    told = [json.loads(job.stdout.readline())]
    carried = [sent_by(first, rail) - earlier for rail, earlier in enumerate(before)]
    assert min(carried) > 1 << 20  # both rails have a share
    cluster.set_cable(first, 1, plugged=False)
    told += [json.loads(line) for line in job.stdout]
    assert job.wait() == 0
    assert len(told) == 3
    assert all(line[f"{name} right"] for line in told for name in ("transpose-sum", "shuffle"))

"""A Dask cluster over two rails, one of which is cut while arrays, or dataframes, move between workers."""

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
FRAMES = Path(__file__).resolve().parents[1] / "support/dask_frames.py"
ROWS = 100_000  # of each of 8 parts: 32 MB in all
NETWORKS = "tcp(rail0),tcp1(rail1)"
DASK = (sys.executable, "-m", "dask")


def start(host: Host, *words: str | Path) -> Popen:
    environment = {**os.environ, "DASK_DISTRIBUTED__COMM__ULNET__NETWORKS": NETWORKS}
    return host.start(*words, env=environment, stderr=None)


def sent_by(host: Host, rail: int) -> int:
    return int(host.run("cat", f"/sys/class/net/{host.interface(rail)}/statistics/tx_bytes").stdout)


def begin(cluster: Cluster, folder: Path) -> str:
    """A scheduler on the first host, a worker on the second and third: the address."""
    scheduler, first, second, _ = cluster
    address = f"ulnet://{scheduler.address()}:8786"
    words = ["--protocol", "ulnet", "--no-dashboard"]
    start(scheduler, *DASK, "scheduler", *words, "--host", scheduler.address(), "--port", "8786")
    more = ["--no-nanny", "--nthreads", "1", "--local-directory"]
    for host in (first, second):
        own = folder / host.name
        own.mkdir()
        start(host, *DASK, "worker", address, *words, *more, own)
    return address


def told_while_a_rail_is_cut(cluster: Cluster, job: Popen) -> list[dict[str, object]]:
    """What a job tells of each round; a cable is pulled after the first."""
    _, first, *_ = cluster
    assert job.stdout is not None
    assert job.stdout.readline() == b"ready\n"
    before = [sent_by(first, rail) for rail in (0, 1)]
    told = [json.loads(job.stdout.readline())]
    carried = [sent_by(first, rail) - earlier for rail, earlier in enumerate(before)]
    assert min(carried) > 1 << 20  # both rails have a share
    cluster.set_cable(first, 1, plugged=False)
    told += [json.loads(line) for line in job.stdout]
    assert job.wait() == 0
    return told


def test_a_rail_is_cut_in_a_shuffle(make_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = make_cluster(4, 2, "100mbit")
    address = begin(cluster, tmp_path)
    *_, client = cluster
    job = start(client, sys.executable, JOB, address, str(SIDE), "3", "2")
    told = told_while_a_rail_is_cut(cluster, job)
    assert len(told) == 3
    assert all(line[f"{name} right"] for line in told for name in ("transpose-sum", "shuffle"))


@pytest.mark.long
@pytest.mark.parametrize("method", ["tasks", "p2p"])
def test_a_rail_is_cut_while_a_dataframe_is_shuffled(
    make_cluster: Callable[..., Cluster], tmp_path: Path, method: str
) -> None:
    for library in ("pandas", "pyarrow", "dask.dataframe"):
        pytest.importorskip(library, reason=f"{library} is missing: .venv/bin/pip install 'dask[dataframe]'")
    cluster = make_cluster(4, 2, "100mbit")
    address = begin(cluster, tmp_path)
    *_, client = cluster
    job = start(client, sys.executable, FRAMES, address, method, str(ROWS), "3")
    told = told_while_a_rail_is_cut(cluster, job)
    assert len(told) == 3
    assert all(all(line.values()) for line in told), told

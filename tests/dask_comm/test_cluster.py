"""A cluster of real processes on one host: graphs are computed, and a worker that is killed is replaced."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

pytestmark = [
    pytest.mark.requirement("ULP"),
    pytest.mark.leaks("LocalCluster leaves threads of its loop and of its pools behind"),
    pytest.mark.filterwarnings("default"),  # those of LocalCluster's end are not ours
]


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(
        n_workers=2, threads_per_worker=1, protocol="ulnet://", dashboard_address=None
    ) as cluster:
        yield cluster


def test_graphs_are_computed_and_a_killed_worker_is_replaced(cluster: LocalCluster) -> None:
    with Client(cluster) as client:
        addresses = [worker.worker_address for worker in cluster.workers.values()]
        assert all(address.startswith("ulnet://127.") for address in addresses)
        assert len({address.rpartition(":")[0] for address in [cluster.scheduler_address, *addresses]}) == 3
        values = np.arange(1 << 20, dtype="f8").reshape(1024, 1024)
        x = da.from_array(values, chunks=(256, 256))
        assert float((x + x.T).sum().compute()) == 2 * values.sum()
        assert sum(client.gather(client.map(lambda number: number, range(200)))) == sum(range(200))
        scattered = client.scatter(values, broadcast=True)
        assert np.array_equal(client.submit(np.negative, scattered).result(), -values)

        killed = next(iter(client.run(os.getpid).values()))
        os.kill(killed, signal.SIGKILL)
        client.wait_for_workers(2, timeout=60)
        assert float((x @ x.T).sum().compute()) == float((values @ values.T).sum())

"""`ulnet sim --on SCHEDULER`: the seeds of a sweep are played by the workers of a Dask cluster."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any, Final

from ulnet.cli.extras import how_to_add
from ulnet.cli.sim_report import Report
from ulnet.cli.sim_work import Work, report_on
from ulnet.sim.errors import PlanError

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

__all__ = ["LOCAL", "reports"]

LOCAL: Final = "local"
_AHEAD: Final = 4  # seeds for each thread of the cluster that are with it at once
_SILENT: Final = logging.CRITICAL
_LAST_SEED: Final = 0.5  # seconds that the ends of seeds have which nobody waits for
_PATIENCE: Final = 30  # seconds in which a scheduler must answer


def reports(on: str, work: Work, seeds: range) -> Iterator[Report]:
    """The report of each seed, as they come. Raises PlanError: no cluster there, or it lost its workers."""
    try:
        from distributed import as_completed
    except ImportError:
        raise PlanError(f"--on needs Dask: {how_to_add('dask')}, or leave --on out") from None
    with _client(on) as client:
        threads = sum(client.nthreads().values())
        if not threads:
            raise PlanError(f"--on {on}: the scheduler has no workers: start one with `dask worker {on}`")
        waiting = iter(seeds)
        first = [_begin(client, work, seed) for seed in islice(waiting, threads * _AHEAD)]
        running = as_completed(first, loop=client.loop)
        for done in running:
            yield _report_of(on, done)
            following = next(waiting, None)
            if following is not None:
                running.add(_begin(client, work, following))


def _begin(client: Client, work: Work, seed: int) -> Any:
    return client.submit(report_on, work, seed, pure=False)


def _report_of(on: str, done: Any) -> Report:
    try:
        report: Report = done.result()
    except PlanError:
        raise
    except Exception as failed:
        text = f"--on {on}: a worker could not play a seed: {type(failed).__name__}: {failed}"
        raise PlanError(text) from None
    done.release()
    return report


@contextmanager
def _client(on: str) -> Iterator[Client]:
    """A client of the scheduler of that address, or of processes of this host."""
    from distributed import Client, LocalCluster

    if on != LOCAL:
        try:
            client = Client(on, timeout=_PATIENCE, set_as_default=False)
        except (OSError, ValueError) as failed:
            text = f"--on {on}: {failed}; give `{LOCAL}`, or an address such as tcp://10.0.0.1:8786"
            raise PlanError(text) from None
        with client:
            yield client
        return
    for handler in logging.getLogger("distributed").handlers:
        handler.setLevel(_SILENT)  # the cluster does it too, and undoes it before its connections end
    with _deaf_children():
        cluster = LocalCluster(
            n_workers=os.cpu_count(),
            threads_per_worker=1,
            protocol="ulnet://",
            dashboard_address=None,
            silence_logs=_SILENT,
        )
    with cluster:
        try:
            with Client(cluster, set_as_default=False) as client:
                yield client
        except BaseException:  # Ctrl-C: nobody wants the seeds under way any more
            cluster.sync(_end_workers, cluster)
            raise


async def _end_workers(cluster: LocalCluster) -> None:
    """End the processes of a cluster. One that still plays a seed is killed: Dask itself waits 4 s for it."""
    await asyncio.gather(*(nanny.close(timeout=_LAST_SEED) for nanny in cluster.workers.values()))


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Ctrl-C reaches all processes of a terminal: those that are started here leave it to this one."""
    resource_tracker.ensure_running()  # its start, in whatever thread, ends with SIGINT let through there
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # what they, and threads, inherit
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

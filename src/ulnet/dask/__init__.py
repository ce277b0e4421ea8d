"""Dask over LNet: `ulnet://` addresses for the schedulers, workers and clients of `distributed`.

`distributed` finds it by the entry point `distributed.comm.backends`; nothing has to be imported.
"""

from __future__ import annotations

from ulnet.dask.backend import UlnetBackend

__all__ = ["UlnetBackend"]

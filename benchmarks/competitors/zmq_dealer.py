"""pyzmq DEALER/ROUTER: the pattern in which a server knows whom it answers."""

from __future__ import annotations

from functools import partial

from competitors.zmq_base import drive_with, serve_with

serve = partial(serve_with, pull=False)
drive = partial(drive_with, pull=False)

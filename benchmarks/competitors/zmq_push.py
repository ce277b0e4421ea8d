"""pyzmq PUSH/PULL; answers go over a second pair the other way."""

from __future__ import annotations

from functools import partial

from competitors.zmq_base import drive_with, serve_with

serve = partial(serve_with, pull=True)
drive = partial(drive_with, pull=True)

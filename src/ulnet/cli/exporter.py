"""`ulnet exporter`: metrics of a node, ulnet's or the kernel's, for Prometheus."""

from __future__ import annotations

import argparse
import signal
import sys
import threading

from ulnet.cli.extras import how_to_add
from ulnet.cli.observed import DEFAULT_PLACE, add_source, place, source_of, whole
from ulnet.cli.parsers import command_parser

__all__ = ["main", "parser"]

_EXAMPLES = """\
example:
  ulnet exporter
  ulnet exporter --kernel --listen 0.0.0.0:9989

Serves http://ADDRESS:PORT/metrics until a signal ends it. It takes the extra `metrics`.
Exit status: 0 ended by a signal, 1 the address cannot be had, 2 usage.
"""


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet exporter --help`."""
    options = parser().parse_args(argv)
    try:
        from ulnet.observe.exporter import Exporter
    except ImportError:
        print(f"ulnet exporter: prometheus_client is missing: {how_to_add('metrics')}", file=sys.stderr)
        return 1
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: ended.set())
    address, port = options.listen
    try:
        source = source_of(options)
        exporter = Exporter(source, address, port, options.peers)
    except ValueError as bad:
        print(f"ulnet exporter: {bad}", file=sys.stderr)
        return 2
    except OSError as failed:
        print(f"ulnet exporter: cannot listen on {address}, port {port}: {failed.strerror}", file=sys.stderr)
        return 1
    exporter.start()
    shown = f"[{address}]" if ":" in address else address
    print(f"metrics of {source.name}: http://{shown}:{exporter.port}/metrics", flush=True)
    try:
        ended.wait()
    finally:
        exporter.close()
    return 0


def parser() -> argparse.ArgumentParser:
    """Its words."""
    words = command_parser("ulnet exporter", "Serve metrics of a node to Prometheus.", _EXAMPLES)
    add_source(words)
    words.add_argument(
        "--listen",
        type=place,
        default=place(DEFAULT_PLACE),
        metavar="ADDRESS:PORT",
        help=f"({DEFAULT_PLACE})",
    )
    words.add_argument(
        "--peers", type=whole(100_000), default=100, metavar="N", help="peers with series of their own (100)"
    )
    return words

"""`ulnet dash`: a web page with the picture of a fabric, live."""

from __future__ import annotations

import argparse
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from types import FrameType
from typing import TYPE_CHECKING

from ulnet.cli.extras import how_to_add
from ulnet.cli.files import Unreadable, read_text
from ulnet.cli.observed import add_source, place, seconds, source_of
from ulnet.cli.output import ended_by_ctrl_c
from ulnet.cli.parsers import command_parser
from ulnet.observe.source import Source

if TYPE_CHECKING:
    import uvicorn

__all__ = ["main", "parser"]

_PLACE = "127.0.0.1:9990"
_EXAMPLES = """\
example:
  ulnet dash
  ulnet dash --kernel
  ulnet dash --nodes fabric.yaml --listen 0.0.0.0:9990

NODES names the nodes, and beneath each how it is asked: `nodes:`, then `  oss1: ssh oss1 lnetctl`, or
`  mds1: {socket: /run/ulnet/lnetd.sock}`. The page is for this host alone unless --listen names another
address: then a token is needed, which is in the address that is printed. It takes the extra `watch`.
Exit status: 0 ended by a signal, 1 the address cannot be had, 2 usage, or a file that cannot be read.
"""


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet dash --help`."""
    options = parser().parse_args(argv)
    try:
        with ended_by_ctrl_c():
            import uvicorn

            from ulnet.observe.connection import AT_ONCE, Connection, allow_files
            from ulnet.observe.dash import Dash, Guard
    except ImportError:
        print(f"ulnet dash: starlette or uvicorn is missing: {how_to_add('watch')}", file=sys.stderr)
        return 1
    from ulnet.observe.fleet import FleetError

    try:
        nodes = _nodes(options)
    except (Unreadable, FleetError, ValueError) as bad:
        print(f"ulnet dash: {bad}", file=sys.stderr)
        return 2
    address, port = options.listen
    own = _is_loopback(address)
    token = options.token or (None if own else secrets.token_urlsafe(16))
    hosts = {"localhost", "127.0.0.1", "::1", address} if own else None
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        listening = socket.create_server((address, port), family=family)
    except OSError as failed:
        text = f"cannot listen on {address}, port {port} ({failed.strerror}): take another one by --listen"
        print(f"ulnet dash: {text}", file=sys.stderr)
        return 1
    with listening:
        shown = socket.gethostname() if address in ("0.0.0.0", "::") else address
        shown = f"[{shown}]" if ":" in shown else shown
        query = f"?token={token}" if token else ""
        print(f"dashboard: http://{shown}:{listening.getsockname()[1]}/{query}", flush=True)
        dash = Dash(nodes, options.every)
        app = Guard(dash.app, hosts=hosts, token=token)
        allow_files()
        config = uvicorn.Config(
            app,
            http=Connection,
            backlog=AT_ONCE,
            log_level="error",  # requests that are none are warnings: anybody could fill the log
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=3,
        )
        server = uvicorn.Server(config)
        server.capture_signals = lambda: _until_a_signal(server, dash.end)  # type: ignore[method-assign]
        server.run([listening])
    return 0


def parser() -> argparse.ArgumentParser:
    """Its words."""
    words = command_parser("ulnet dash", "Serve a web page with the picture of a fabric, live.", _EXAMPLES)
    add_source(words)
    words.add_argument("--nodes", metavar="NODES", help="a file that names many nodes")
    words.add_argument(
        "--listen", type=place, default=place(_PLACE), metavar="ADDRESS:PORT", help=f"({_PLACE})"
    )
    words.add_argument("--token", metavar="TEXT", help="what must be known to see the page (one is made up)")
    words.add_argument("--every", type=seconds, default=1.0, metavar="S", help="seconds between readings (1)")
    return words


def _nodes(options: argparse.Namespace) -> list[tuple[str, Source]]:
    """Raises Unreadable, FleetError, ValueError."""
    from ulnet.observe.fleet import read_fleet

    if options.nodes is not None:
        return [(node.name, node.source) for node in read_fleet(read_text(options.nodes))]
    source = source_of(options)
    named = options.tool is not None or options.file is not None
    return [(source.name if named else socket.gethostname(), source)]


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


@contextmanager
def _until_a_signal(server: uvicorn.Server, end: Callable[[], None]) -> Iterator[None]:
    """Signals end the server; uvicorn itself would raise them anew afterwards: another exit status."""

    def ended(number: int, frame: FrameType | None) -> None:
        end()
        server.handle_exit(number, frame)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, ended)
    yield

"""`ulnet selftest`: a node that takes part in tests, without a daemon; plans of tests, and their reports."""

from __future__ import annotations

import argparse
import asyncio
import errno
import logging
import signal
import sys
from typing import Final

from ulnet.cli.console_socket import console_socket
from ulnet.cli.parsers import command_parser
from ulnet.cli.ping import own_nid
from ulnet.core.status import LNetError
from ulnet.dlc.config import Step
from ulnet.dlc.endpoint import Endpoint
from ulnet.dlc.errors import ErrorItem
from ulnet.dlc.legacy import LegacyError
from ulnet.dlc.modprobe import module_requests
from ulnet.dlc.protocol import ProtocolError
from ulnet.dlc.server import ControlServer
from ulnet.host import HostError, source_address_for
from ulnet.lnd.loop import new_event_loop
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import NetType, Nid, NidError
from ulnet.node import Node
from ulnet.node.admin import Admin
from ulnet.selftest.addition import SelftestAddition

__all__ = ["main"]

_log = logging.getLogger("ulnet.selftest")
_FILES: Final = {"serve": 0, "run": 1, "compare": 2}
_PATIENCE: Final = 60.0  # seconds until somebody has begun a session

_EXAMPLES = """\
example:
  ulnet selftest serve --networks 'tcp(eth0,eth1)'
  ulnet selftest serve --nid 10.0.0.2@tcp --accept all
  ulnet selftest run plan.yaml --json today.json --html today.html
  ulnet selftest compare yesterday.json today.json --tolerance 5

serve: takes part in tests of any console (`lst` here, or that of kernel nodes) until SIGTERM or SIGINT; the
socket takes the commands of `lst` and lnetctl. A host with an lnetd needs none: `lnetctl set selftest 1`.
run: does what a plan says, from the node behind --socket, else from the lnetd of this host (ULNET_SOCKET has
its socket), or by a node of its own where there is none.
Exit status: 0, 1 where it cannot start, an expectation is missed or a report is worse, 2 usage.
"""


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet selftest --help`."""
    parser = _parser()
    options = parser.parse_intermixed_args(argv)  # options may stand between the action and its files
    if len(options.files) != _FILES[options.what]:
        parser.error(f"{options.what} takes {_FILES[options.what]} files")
    logging.basicConfig(level="WARNING", format="ulnet selftest: %(message)s")
    try:
        if options.what == "compare":
            from ulnet.cli.selftest_run import compare_reports

            return compare_reports(options)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            if options.what == "run":
                from ulnet.cli.selftest_run import run

                return run(options, lambda: _own_node(options), runner)
            return runner.run(_serve(options))
    except (LNetError, HostError, ProtocolError) as refused:
        print(f"ulnet selftest: {refused.text}", file=sys.stderr)
    except NidError as bad:
        print(f"ulnet selftest: {bad}", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "ulnet selftest",
        "Take part in LNet selftest without a daemon, run plans of tests, compare their reports.",
        _EXAMPLES,
    )
    parser.add_argument("what", choices=list(_FILES), help="what to do")
    parser.add_argument("files", nargs="*", metavar="FILE", help="run: the plan; compare: two reports (JSON)")
    parser.add_argument("--json", metavar="FILE", help="run: write the report there")
    parser.add_argument("--html", metavar="FILE", help="run: write it with plots there")
    parser.add_argument("--force", action="store_true", help="run: take the place of other sessions")
    parser.add_argument(
        "--tolerance", type=float, default=10.0, metavar="P", help="compare: worse is P percent less (10)"
    )
    parser.add_argument("--networks", metavar="TEXT", help="NIs as the module parameter: tcp0(eth0,eth1)")
    parser.add_argument("--nid", action="append", default=[], metavar="NID", help="an NI by its NID")
    parser.add_argument(
        "--socket", metavar="PATH", help="serve: its control socket; run: that of the node to ask"
    )
    parser.add_argument(
        "--accept",
        choices=("secure", "all"),
        default="secure",
        help="whose connections: from source ports below 1024 (default), or all",
    )
    parser.add_argument("--port", type=int, default=988, help="TCP port of this and other nodes (988)")
    parser.add_argument("--one-session", action="store_true", help=argparse.SUPPRESS)  # for `lst`
    return parser


async def _own_node(options: argparse.Namespace) -> tuple[Node, SelftestAddition]:
    """A node with a console, for a plan where no lnetd is there. Raises LNetError, NidError."""
    options.one_session = True
    node = Node(tcp=TcpParams(accept=options.accept, accept_port=options.port))
    addition = SelftestAddition(node, on=True, reach=lambda nid: _reach(node, nid))
    await node.start()
    addition.begin()
    await _configure(node, Admin(node), options)
    return node, addition


async def _serve(options: argparse.Namespace) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    node = Node(tcp=TcpParams(accept=options.accept, accept_port=options.port))
    addition = SelftestAddition(
        node,
        on=True,
        reach=lambda nid: _reach(node, nid),
        ended=stop.set if options.one_session else None,
    )
    admin = Admin(node, additions=[addition])
    endpoint = Endpoint(options.socket or console_socket())
    server = ControlServer(endpoint, admin.handle)
    try:
        await node.start()
        admin.begin_additions()
        await _configure(node, admin, options)
        await server.start()
        print("ready", flush=True)
        if options.one_session:
            loop.call_later(_PATIENCE, _stop_unused, addition, stop)
        await stop.wait()
    finally:
        await server.close()
        await admin.end_additions()
        await node.close()
    return 0


def _stop_unused(addition: SelftestAddition, stop: asyncio.Event) -> None:
    if addition.console.roster is None:
        stop.set()


async def _configure(node: Node, admin: Admin, options: argparse.Namespace) -> None:
    """Add the NIs that were named. Raises LNetError, NidError."""
    if options.networks:
        try:
            requests = module_requests({"networks": options.networks}).requests
        except LegacyError as bad:
            raise LNetError(errno.EINVAL, str(bad)) from None
        errors: list[ErrorItem] = await admin.apply([Step(one, 0) for one in requests])
        if errors:
            raise LNetError(abs(errors[0].errno), errors[0].descr)
    for text in options.nid:
        node.add_ni(Nid.parse(text))
    if not (options.networks or options.nid or options.one_session):
        raise LNetError(errno.EINVAL, "name this node's NIs with --networks or --nid: others have to find it")


def _reach(node: Node, target: Nid) -> None:
    """Have an NI on the net of a node that is about to be asked. Raises LNetError."""
    core = node.core
    if target in core.nis or any(nid.net == target.net for nid in core.nis):
        return
    if target.net.type in (NetType.TCP, NetType.O2IB) and _is_here(target):
        try:
            node.add_ni(target)  # this host is one of the nodes that are tested
            return
        except LNetError as taken:
            if taken.errno != errno.EADDRINUSE:
                raise
    node.add_ni(own_nid(target))


def _is_here(target: Nid) -> bool:
    try:
        return source_address_for(target.ip) == target.ip
    except HostError:
        return False


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""`ulnet ping`: ask nodes for their NIDs from a short-lived node of its own, with no daemon."""

from __future__ import annotations

import argparse
import asyncio
import errno
import json
import socket
import sys
from dataclasses import dataclass

from ulnet.cli.parsers import command_parser
from ulnet.core.status import LNetError
from ulnet.host import HostError, source_address_for
from ulnet.lnd.o2ib import O2ibParams
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import NetType, Nid, NidError, NidList
from ulnet.node import Node, PingResult
from ulnet.wire.ping import Feature

__all__ = ["check_free", "main", "own_nid", "seconds"]

_EXAMPLES = """\
example:
  ulnet ping 192.168.110.12@tcp 192.168.110.12@o2ib
  ulnet ping --timeout 3 --json 192.168.110.[11-13]@tcp

Without root the connection comes from a source port above 1023, which a node with accept=secure (the
default of kernel nodes) refuses; the answer says so. The command is a node with the NID of this host: where
lnetd, kernel LNet or a program has that NID, it refuses to ask, for peers would drop the connections of that
node. Use `lnetctl ping` there. Exit status: 0 all answered, 1 some did not, 2 usage.
"""

_MOST_TARGETS = 4096


@dataclass(frozen=True)
class _Outcome:
    target: Nid
    result: PingResult | None
    error: LNetError | None = None


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet ping --help`."""
    options = _parser().parse_args(argv)
    try:
        targets = NidList.parse(" ".join(options.nid)).expand(_MOST_TARGETS)
        source = Nid.parse(options.source) if options.source else None
    except NidError as bad:
        print(f"ulnet ping: {bad}", file=sys.stderr)
        return 2
    try:
        outcomes = asyncio.run(_ping_all(targets, source, options.timeout, options.port))
    except LNetError as refusal:
        print(f"ulnet ping: {refusal}", file=sys.stderr)
        return 1
    for line in _as_json(outcomes) if options.json else _as_yaml(outcomes):
        print(line)
    return 0 if all(outcome.result for outcome in outcomes) else 1


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("ulnet ping", "Ask LNet nodes for their NIDs, with no daemon.", _EXAMPLES)
    parser.add_argument("nid", nargs="+", help="NIDs, also with ranges: 10.0.0.[1-4]@tcp")
    parser.add_argument("--timeout", type=seconds, default=2.0, metavar="S", help="seconds to wait (2)")
    parser.add_argument("--source", metavar="NID", help="the NID to ask from (default: by the route)")
    parser.add_argument("--port", type=int, default=988, help="the port of the nodes' acceptors (988)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    return parser


def seconds(text: str) -> float:
    """How long to wait. Raises ArgumentTypeError."""
    number = float(text)
    if not 0 < number <= 3600:
        raise argparse.ArgumentTypeError(f"{text}: give more than 0 and at most 3600 seconds")
    return number


async def _ping_all(targets: list[Nid], source: Nid | None, timeout: float, port: int) -> list[_Outcome]:
    tcp, o2ib = TcpParams(listen=False, accept_port=port), O2ibParams(listen=False)
    async with Node(tcp=tcp, o2ib=o2ib) as node:
        return await asyncio.gather(*(_ping(node, target, source, timeout, port) for target in targets))


async def _ping(node: Node, target: Nid, source: Nid | None, timeout: float, port: int) -> _Outcome:
    try:
        own = source or own_nid(target)
        if own not in node.core.nis:
            check_free(own, port, "ask it by `lnetctl ping`")
            node.add_ni(own)
        return _Outcome(target, await node.ping(target, timeout=timeout, source=own))
    except LNetError as error:
        return _Outcome(target, None, error)


def own_nid(target: Nid) -> Nid:
    """The NID to be known by: the address that the host itself would use towards the target."""
    if target.net.type not in (NetType.TCP, NetType.O2IB):
        text = f"{target}: only tcp and o2ib nets can be pinged without a daemon"
        raise LNetError(errno.EHOSTUNREACH, text)
    try:
        address = source_address_for(target.ip)
    except HostError as error:
        raise LNetError(error.errno, f"{target}: {error.text}") from None
    if address == target.ip and target.net.type == NetType.O2IB:
        text = f"{target} is this host: ask its daemon, by `lnetctl ping`"
        raise LNetError(errno.EADDRINUSE, text)
    if address == target.ip:  # the target is on this host: the same NID cannot be at both ends
        address = "127.0.0.1" if address != "127.0.0.1" else "127.0.0.2"
    return Nid.of(target.net, address)


def check_free(own: Nid, port: int, way_out: str) -> None:
    """Raise LNetError(EADDRINUSE) where a node of this host listens at that address.

    Its peers would take a command with the same NID for that node, started anew, and drop its connections.
    """
    if own.net.type != NetType.TCP:
        return
    family = socket.AF_INET6 if own.is_large else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of an earlier node are none
        try:
            probe.bind((own.ip, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return  # not permitted, or no address of this host: that is told by whoever uses it
            text = (
                f"{own}: a node of this host listens there, and peers would take this command for that node: "
                f"{way_out}, or name another NID by --source"
            )
            raise LNetError(errno.EADDRINUSE, text) from None


def _as_yaml(outcomes: list[_Outcome]) -> list[str]:
    answered = [outcome for outcome in outcomes if outcome.result]
    failed = [outcome for outcome in outcomes if outcome.error]
    lines = ["ping:"] if answered else []
    for outcome in answered:
        assert outcome.result is not None
        lines.append(f"- primary nid: {outcome.result.primary_nid}")
        multi_rail = bool(outcome.result.features & Feature.MULTI_RAIL)
        lines.append(f"  Multi-Rail: {str(multi_rail).lower()}")
        lines.append("  peer_ni:")
        lines += [f"  - nid: {nid}" for nid in outcome.result.nids]
    lines += ["manage:"] if failed else []
    for outcome in failed:
        assert outcome.error is not None
        lines.append("- ping:")
        lines.append(f"  errno: -{outcome.error.errno}")
        words = f"failed to ping {outcome.target}: {_cause(outcome)}".replace("'", "''")
        lines.append(f"  descr: '{words}'")
    return lines


def _cause(outcome: _Outcome) -> str:
    assert outcome.error is not None
    return outcome.error.text.removeprefix(f"{outcome.target}: ")


def _as_json(outcomes: list[_Outcome]) -> list[str]:
    lines = []
    for outcome in outcomes:
        row: dict[str, object] = {"nid": str(outcome.target)}
        if outcome.result is not None:
            row["primary_nid"] = str(outcome.result.primary_nid)
            row["nids"] = [str(nid) for nid in outcome.result.nids]
            row["features"] = int(outcome.result.features)
        if outcome.error is not None:
            row["errno"] = -outcome.error.errno
            row["error"] = _cause(outcome)
        lines.append(json.dumps(row))
    return lines

"""`ulnet rpc`: ask a service what it has, and call its methods, from a short-lived node of its own."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

import msgspec

from ulnet.cli.ping import own_nid, seconds
from ulnet.core.status import LNetError
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import Nid, NidError
from ulnet.node import Node
from ulnet.rpc import Client, RpcError
from ulnet.rpc.server import METHODS

__all__ = ["main"]

_EXAMPLES = """\
example:
  ulnet rpc methods 10.0.0.2@tcp values
  ulnet rpc call 10.0.0.2@tcp values get --json '"big"' --timeout 5

What --json gives travels as msgpack, what --text gives as it is. A reply that is msgpack is printed as JSON,
any other as it is. Exit status: 0 the call went well, 1 it failed, 2 usage.
"""


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet rpc --help`."""
    parser = _parser()
    options = parser.parse_args(argv)
    if (options.what == "call") != (options.method is not None):
        parser.error("give a method with 'call', and none with 'methods'")
    try:
        target = Nid.parse(options.nid)
        source = Nid.parse(options.source) if options.source else None
        data = _data(options)
    except (NidError, ValueError) as bad:
        print(f"ulnet rpc: {bad}", file=sys.stderr)
        return 2
    try:
        reply = asyncio.run(_call(options, target, source, data))
    except RpcError as failed:
        print(f"ulnet rpc: {failed} (errno {failed.errno}, executed: {failed.executed})", file=sys.stderr)
        return 1
    except LNetError as failed:
        print(f"ulnet rpc: {failed}", file=sys.stderr)
        return 1
    _show(reply, options)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ulnet rpc",
        description="Ask a service (ulnet.rpc) what it has, and call its methods.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=["methods", "call"], help="what to do")
    parser.add_argument("nid", help="a NID of the node that serves")
    parser.add_argument("service", help="the service's name")
    parser.add_argument("method", nargs="?", help="the method to call")
    parser.add_argument("--json", metavar="TEXT", help="the data, as JSON")
    parser.add_argument("--text", metavar="TEXT", help="the data, as they are")
    parser.add_argument("--timeout", type=seconds, default=10.0, metavar="S", help="seconds to wait (10)")
    parser.add_argument("--source", metavar="NID", help="the NID to ask from (default: by the route)")
    parser.add_argument("--port", type=int, default=988, help="the port of the node's acceptor (988)")
    return parser


def _data(options: argparse.Namespace) -> bytes:
    """Raises ValueError for what is no JSON, or where both are given."""
    if options.json is not None and options.text is not None:
        raise ValueError("give --json or --text, not both")
    if options.text is not None:
        text: str = options.text
        return text.encode()
    if options.json is None:
        return b""
    try:
        return msgspec.msgpack.encode(json.loads(options.json))
    except json.JSONDecodeError as bad:
        raise ValueError(f"--json {options.json!r} is no JSON: {bad}") from None


async def _call(options: argparse.Namespace, target: Nid, source: Nid | None, data: bytes) -> bytes:
    params = TcpParams(listen=False, accept_port=options.port)
    async with Node(tcp=params) as node:
        node.add_ni(source or own_nid(target))
        async with Client(node, target, options.service) as client:
            answer = await client.call(options.method or METHODS, data, timeout=options.timeout)
            return answer.data


def _show(reply: bytes, options: argparse.Namespace) -> None:
    try:
        value: Any = msgspec.msgpack.decode(reply)
        if options.what == "call":
            print(msgspec.json.encode(value).decode())
            return
    except (msgspec.MsgspecError, TypeError):
        sys.stdout.buffer.write(reply)
        return
    print(f"service: {value['service']}")
    print("methods:")
    for method in value["methods"]:
        print(f"- name: {method['name']}")
        print(f"  kind: {method['kind']}")
        for name in ("calls", "errors", "overdue", "given_up", "repeated"):
            print(f"  {name}: {method[name]}")

"""`ulnet rpc`: ask a service what it has, and call its methods, from a short-lived node of its own."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Final

import msgspec

from ulnet.cli.parsers import command_parser
from ulnet.cli.ping import check_free, own_nid, seconds
from ulnet.cli.rpc_client import Told, generate
from ulnet.cli.rpc_stats import Counted, as_text
from ulnet.core.status import LNetError
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import Nid, NidError
from ulnet.nid.errors import escaped
from ulnet.node import Node
from ulnet.rpc import Client, RpcError
from ulnet.rpc.introspection import METHODS, TYPES
from ulnet.rpc.service import decoded
from ulnet.wire.lnet import LNET_MTU

__all__ = ["main"]

# What to do, and the method that is called for it.
_METHODS: Final = {"methods": METHODS, "call": "", "stats": METHODS, "client": TYPES}

_EXAMPLES = """\
example:
  ulnet rpc methods 10.0.0.2@tcp values
  ulnet rpc call 10.0.0.2@tcp values get --json '"big"' --timeout 5
  ulnet rpc stats 10.0.0.2@tcp values
  ulnet rpc client 10.0.0.2@tcp values > values_client.py

What --json gives travels as msgpack, what --text gives as it is. A reply that is msgpack is printed as JSON,
any other as it is; on a terminal with escapes for what that would obey. 'client' writes a Python module with
a typed method for each of the service's. Exit status: 0 the call went well, 1 it failed, 2 usage.
"""


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet rpc --help`."""
    parser = _parser()
    options = parser.parse_args(argv)
    if (options.what == "call") != (options.method is not None):
        parser.error(f"give a method with 'call', and none with '{options.what}'")
    if options.sync and options.what != "client":
        parser.error("--sync is for 'client'")
    try:
        target = Nid.parse(options.nid)
        source = Nid.parse(options.source) if options.source else None
        data = _data(options)
    except (NidError, ValueError) as bad:
        print(f"ulnet rpc: {bad}", file=sys.stderr)
        return 2
    try:
        reply = asyncio.run(_call(options, target, source, data))
        _show(reply, options)
    except RpcError as failed:
        told = escaped(str(failed), keep="\n\t")
        words = f"{told} (errno {failed.errno}, executed: {failed.executed})"
        print(f"ulnet rpc: {words}", file=sys.stderr)
        return 1
    except LNetError as failed:
        print(f"ulnet rpc: {failed}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "ulnet rpc", "Ask a service (ulnet.rpc) what it has, and call its methods.", _EXAMPLES
    )
    parser.add_argument("what", choices=list(_METHODS), help="what to do")
    parser.add_argument("nid", help="a NID of the node that serves")
    parser.add_argument("service", help="the service's name")
    parser.add_argument("method", nargs="?", help="the method to call")
    parser.add_argument("--json", metavar="TEXT", help="the data, as JSON")
    parser.add_argument("--text", metavar="TEXT", help="the data, as they are")
    parser.add_argument("--sync", action="store_true", help="with 'client': a client for ulnet.sync")
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
        own = source or own_nid(target)
        check_free(own, options.port, "call from another host")
        node.add_ni(own)
        # What a service tells of its types has room in a frame of that size.
        async with Client(node, target, options.service, slots=1, largest=LNET_MTU) as client:
            method = _METHODS[options.what] or options.method
            answer = await client.call(method, data, timeout=options.timeout)
            return answer.data


def _show(reply: bytes, options: argparse.Namespace) -> None:
    """Raises RpcError for what is no answer of a service."""
    if options.what == "call":
        text: str | None = None
        try:
            text = msgspec.json.encode(msgspec.msgpack.decode(reply)).decode() + "\n"
        except (msgspec.MsgspecError, TypeError, UnicodeDecodeError, RecursionError):
            pass  # it is written as it came
        if sys.stdout.isatty():
            shown = reply.decode(errors="backslashreplace") if text is None else text
            print(escaped(shown, keep="\n\t"), end="")
        elif text is None:
            sys.stdout.buffer.write(reply)
        else:
            print(text, end="")
    elif options.what == "client":
        print(generate(decoded(reply, Told), sync=options.sync), end="")
    else:
        print("\n".join(as_text(decoded(reply, Counted), everything=options.what == "stats")))

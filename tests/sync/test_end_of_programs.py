"""Programs without asyncio end: with all left open, and by Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from support.ports import free_port
from support.shared import ROOT

pytestmark = pytest.mark.requirement("ULP")

_BEGIN = """
import errno, threading, time
from ulnet.lnd.tcp import TcpParams
from ulnet.sync import Client, Node, RpcError, Server, Service

service = Service("shop")
began, told = threading.Event(), threading.Event()

@service.method("wait")
def wait(call):
    print("began", flush=True)
    began.set()
    while not call.cancelled:
        time.sleep(0.01)
    print("cancelled\\n", end="", flush=True)
    told.set()

goes_on = threading.Event()

@service.method("slow")
def slow(call):
    began.set()
    goes_on.wait()
    return bytes(call.data)

@service.method("stuck")
def stuck(call):
    began.set()
    threading.Event().wait()

params = TcpParams(accept="all", accept_port={port}, reserved_ports=False)
server, node = Node(tcp=params).start(), Node(tcp=params).start()
server.add_ni("127.4.8.2@tcp")
node.add_ni("127.4.8.1@tcp")
serving = Server(service, server)
client = Client(node, "127.4.8.2@tcp", "shop")
"""

_LEFT_OPEN = """
def call(method):
    try:
        client.call(method)
    except RpcError as failed:
        print(f"{method} {failed.errno == errno.ESHUTDOWN}\\n", end="", flush=True)

for method in ("wait", "stuck"):
    threading.Thread(target=call, args=(method,), daemon=True).start()
    began.wait()
    began.clear()
print("the end", flush=True)
"""

_INTERRUPTED = """
try:
    client.call("wait")
except KeyboardInterrupt:
    told.wait()
    print("interrupted, under way:", client.under_way)
"""


def started(program: str, begin: str = _BEGIN) -> subprocess.Popen[str]:
    """A program with two nodes, a service and its client."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", (begin + program).replace("{port}", str(free_port()))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )


def test_a_program_ends_that_left_all_open() -> None:
    with started(_LEFT_OPEN) as program:
        out, err = program.communicate(timeout=120)
    assert (program.returncode, err) == (0, "")
    said = out.splitlines()
    assert said[:2] == ["began", "the end"]
    assert sorted(said[2:]) == ["cancelled", "stuck True", "wait True"]


def test_ctrl_c_cancels_a_call() -> None:
    with started(_INTERRUPTED) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "began\n"
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=120)
    assert (program.returncode, out, err) == (0, "cancelled\ninterrupted, under way: 0\n", "")

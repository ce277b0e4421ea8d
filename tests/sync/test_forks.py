"""Processes that are forked from one with a node: they are told so at once, and disturb nothing."""

from __future__ import annotations

import asyncio
import errno
import multiprocessing
import os
import signal
import socket
import traceback
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import pytest

import ulnet
from support.ports import free_port
from sync.conftest import SERVER, Nodes
from sync.test_end_of_programs import started
from ulnet.core.status import LNetError
from ulnet.lnd.forks import in_forks
from ulnet.lnd.tcp import TcpParams
from ulnet.sync import Call, Client, Inbox, Node, RpcError, Server, Service

pytestmark = [
    pytest.mark.requirement("ULP"),
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
]
_PATIENCE = 60  # seconds until a child that hangs is ended


def _fork(work: Callable[[], object]) -> int:
    """How a child ends that does this: 0, 1 after an exception, or by the signal of its time-out."""
    child = os.fork()
    if not child:
        failed = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_PATIENCE)
            work()
            failed = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(failed)
    return os.waitpid(child, 0)[1]


def _refused(call: Callable[[], object]) -> None:
    with pytest.raises(LNetError, match=r"forked from that: make a node of its own here, or ") as failed:
        call()
    assert failed.value.errno == errno.ENETDOWN
    if isinstance(failed.value, RpcError):
        assert failed.value.executed == "no"


def _service() -> Service:
    service = Service("shop")

    @service.method("echo")
    def echo(call: Call) -> bytes:
        return bytes(call.data)

    @service.stream("count")
    def count(call: Call) -> Iterator[bytes]:
        yield from (b"%d" % number for number in range(100))

    return service


def _sockets() -> set[int]:
    """Descriptors by which peers are reached."""
    return {number for number in map(int, os.listdir("/proc/self/fd")) if _is_of_internet(number)}


def _is_of_internet(number: int) -> bool:
    try:
        found = socket.socket(fileno=number)
    except OSError:
        return False
    try:
        return found.family in (socket.AF_INET, socket.AF_INET6)
    finally:
        found.detach()


def test_calls_in_a_fork_fail_at_once_and_leave_the_parent_its_node() -> None:
    before = _sockets()
    params = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
    with Node(tcp=params) as node, Node(tcp=params) as serving:
        node.add_ni("127.4.8.1@tcp")
        serving.add_ni(SERVER)
        with Server(_service(), serving) as server, Client(node, SERVER, "shop") as client:
            inbox = Inbox(serving, 31, 1)
            stream = client.stream("count")
            assert next(stream) == b"0"

            def in_child() -> None:
                assert _sockets() <= before  # peers hear of the parent's end, and of nothing else
                for one in (node, serving):
                    assert not one.running
                    _refused(one.start)
                    _refused(partial(one.add_ni, "127.4.8.3@tcp"))
                    _refused(partial(one.put, SERVER, 31, 1, b"x", timeout=1))
                    _refused(partial(one.do, len, b""))
                _refused(lambda: node.ping(SERVER, timeout=1))
                _refused(lambda: client.call("echo", b"x", timeout=1))
                _refused(lambda: client.stream("count"))
                _refused(lambda: next(stream))
                _refused(lambda: Client(node, SERVER, "shop"))
                _refused(lambda: Server(_service(), serving))
                _refused(lambda: Inbox(serving, 32, 1))
                _refused(lambda: inbox.receive(timeout=1))
                _refused(lambda: next(inbox))
                for thing in (stream, inbox, client, server, node, serving):
                    thing.close()

            assert _fork(in_child) == 0
            assert [bytes(chunk) for chunk in stream] == [b"%d" % number for number in range(1, 100)]
            assert client.call("echo", b"still here", timeout=60).data == b"still here"
            assert node.put(SERVER, 31, 1, b"x", timeout=60) == 1
            assert bytes(inbox.receive(timeout=60).data) == b"x"


def test_a_fork_makes_a_node_of_its_own(nodes: Nodes) -> None:
    port = free_port()

    def in_child() -> None:
        params = TcpParams(accept="all", accept_port=port, reserved_ports=False)
        with Node(tcp=params) as one, Node(tcp=params) as other:
            one.add_ni("127.4.8.5@tcp")
            other.add_ni("127.4.8.6@tcp")
            assert str(one.ping("127.4.8.6@tcp", timeout=30).primary_nid) == "127.4.8.6@tcp"
            _refused(lambda: nodes[0].ping(SERVER))

    assert _fork(in_child) == 0
    assert str(nodes[0].ping(SERVER, timeout=30).primary_nid) == SERVER


def test_a_node_that_was_closed_starts_in_a_fork() -> None:
    node = Node()
    node.start().close()

    def in_child() -> None:
        node.start()
        assert node.running
        node.close()

    assert _fork(in_child) == 0


def test_a_process_of_multiprocessing_closes_what_is_its_parents(nodes: Nodes) -> None:
    process = multiprocessing.get_context("fork").Process(target=nodes[0].close)
    process.start()
    process.join(_PATIENCE)
    ended = process.exitcode
    if ended is None:
        process.kill()
        process.join()
    assert ended == 0
    assert str(nodes[0].ping(SERVER, timeout=30).primary_nid) == SERVER


_FORKED = """
import os, signal, sys
answers = []
asking = threading.Thread(target=lambda: answers.append(client.call("slow", b"x").data))
asking.start()
began.wait()
child = os.fork()
if not child:
    signal.alarm(60)
    sys.exit(0)
print("child", os.waitpid(child, 0)[1], flush=True)
goes_on.set()
asking.join()
print(answers, node.ping("127.4.8.2@tcp", timeout=30).primary_nid)
"""


def test_a_fork_that_only_ends_does_so_with_a_call_of_its_parent_under_way() -> None:
    with started(_FORKED) as program:
        out, err = program.communicate(timeout=120)
    assert (program.returncode, err) == (0, "")
    assert out.splitlines() == ["child 0", "[b'x'] 127.4.8.2@tcp"]


def test_a_node_on_asyncio_is_of_no_use_in_a_fork() -> None:
    async def main() -> None:
        node = ulnet.Node()
        async with node:

            def in_child() -> None:
                assert not node.running
                _refused(lambda: node.core)
                _refused(lambda: node.attach(30, 7, bytearray(1), handler=lambda event: None))
                calls = node.start(), node.ping("0@lo"), node.put("0@lo", 30, 7, b"x")
                coroutine: Coroutine[Any, Any, object]
                for coroutine in calls:
                    _refused(partial(coroutine.send, None))
                with pytest.raises(StopIteration):
                    node.close().send(None)

            assert _fork(in_child) == 0
            assert str((await node.ping("0@lo")).primary_nid)

    asyncio.run(main())


class _Told:
    """Something that lives in one process, and may fail to hear that this is another one."""

    def __init__(self, fails: bool) -> None:
        self.fails = fails
        self.told = False

    def forked(self) -> None:
        self.told = True
        if self.fails:
            raise OSError(errno.EMFILE, "no descriptor is left")


def test_all_hear_of_a_fork_where_some_of_them_fail(caplog: pytest.LogCaptureFixture) -> None:
    things = [_Told(fails=number % 2 == 0) for number in range(8)]
    for thing in things:
        in_forks(thing)

    def in_child() -> None:
        assert all(thing.told for thing in things)
        said = [record for record in caplog.records if "is its parent's" in record.getMessage()]
        assert len(said) == 4
        assert all("no descriptor is left" in str(record.exc_info) for record in said)

    assert _fork(in_child) == 0
    assert not any(thing.told for thing in things)


_ON_ASYNCIO = """
import asyncio, os, signal, sys
import ulnet.rpc
from ulnet.lnd.tcp import TcpParams

async def main():
    goes_on = asyncio.Event()
    service = ulnet.rpc.Service("shop")

    @service.method("slow")
    async def slow(call):
        await goes_on.wait()
        return b"served"

    params = TcpParams(accept="all", accept_port={port}, reserved_ports=False)
    async with ulnet.Node(tcp=params) as node, ulnet.Node(tcp=params) as serving:
        node.add_ni("127.4.8.1@tcp")
        serving.add_ni("127.4.8.2@tcp")
        server = ulnet.rpc.Server(service, serving)
        server.start()
        client = ulnet.rpc.Client(node, "127.4.8.2@tcp", "shop")
        call = asyncio.create_task(client.call("slow"))
        while not client.under_way:
            await asyncio.sleep(0.01)
        await node.ping("127.4.8.2@tcp", timeout=30)
        child = os.fork()
        if not child:
            signal.alarm(60)
            sys.exit(0)  # the child's loop cancels all tasks
        print("child", os.waitpid(child, 0)[1], flush=True)
        goes_on.set()
        print(bytes((await call).data))
        await client.close()
        await server.close()

asyncio.run(main())
"""


def test_tasks_that_a_fork_cancels_go_on_in_its_parent() -> None:
    with started(_ON_ASYNCIO, begin="") as program:
        out, err = program.communicate(timeout=120)
    assert (program.returncode, out.splitlines()) == (0, ["child 0", "b'served'"]), err


_ENDS = """
import asyncio, os, signal, sys
import ulnet
from ulnet.lnd.tcp import TcpParams

SIZE = 1 << 18
failures, lines = [], []

def child_of(end):
    child = os.fork()
    if not child:
        signal.alarm(60)
        if end == "exit":
            sys.exit(0)
        if end == "error":
            raise ValueError("a child fails")
        if end == "interrupt":
            raise KeyboardInterrupt
    return child

async def main():
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: failures.append(context))
    params = TcpParams(accept="all", accept_port={port}, reserved_ports=False)
    node, other, late = (ulnet.Node(tcp=params, report=lines.append) for _ in range(3))
    async with node, other, late:
        node.add_ni("127.4.8.1@tcp")
        other.add_ni("127.4.8.2@tcp")
        late.add_ni("127.4.8.3@tcp")
        inbox = other.inbox(30, 7, slots=64, size=SIZE)
        got = []

        async def read():
            async for message in inbox:
                data = bytes(message.data)
                got.append((data[:8], data[8:] == bytes([data[8]]) * (len(data) - 8)))
                message.release()

        async def write(writer):
            for turn in range(100):
                sent.append(b"%04d%04d" % (writer, turn))
                await node.put("127.4.8.2@tcp", 30, 7, sent[-1] + bytes([turn]) * (SIZE - 8), timeout=60)

        async def linger():
            try:
                await asyncio.sleep(3600)
            finally:  # also in the child, whose copy of the loop goes on meanwhile
                await asyncio.sleep(0.2)

        sent = []
        lingering = asyncio.create_task(linger())
        reading = asyncio.create_task(read())
        writing = [asyncio.create_task(write(writer)) for writer in range(3)]
        while not got:
            await asyncio.sleep(0)
        # What the child copies: frames that are half sent, and a peer that is about to be called.
        calling = asyncio.create_task(late.put("127.4.8.2@tcp", 30, 7, b"before the fork", timeout=60))
        await asyncio.sleep(0)
        child = child_of("{end}")
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            await asyncio.sleep(0.001)
        ended = os.waitstatus_to_exitcode(ended[1])
        woken = await asyncio.wait_for(loop.run_in_executor(None, lambda: "woken"), 60)
        await calling
        for task in writing:
            await task
        while len(got) < len(sent) + 1:
            await asyncio.sleep(0.001)
        reading.cancel()
        lingering.cancel()
        assert sorted(name for name, _ in got) == sorted([*sent, b"before t"]), len(got)
        assert all(whole for name, whole in got if name != b"before t")
        print(woken, ended, lines, failures, flush=True)

with asyncio.Runner({loop}) as runner:
    runner.run(main())
"""


@pytest.mark.parametrize("loop", ["loop_factory=ulnet.new_event_loop", ""], ids=["ulnet", "asyncio"])
@pytest.mark.parametrize(("end", "ended"), [("exit", 0), ("error", 1), ("interrupt", -signal.SIGINT)])
def test_a_fork_that_ends_through_its_copy_of_the_loop_takes_nothing_from_its_parent(
    loop: str, end: str, ended: int
) -> None:
    program = _ENDS.replace("{end}", end).replace("{loop}", loop)
    with started(program, begin="") as parent:
        out, err = parent.communicate(timeout=180)
    assert parent.returncode == 0, err
    assert out.splitlines() == [f"woken {ended} [] []"], err


_IN_HANDLER = """
import asyncio, os, signal, sys
import ulnet
from ulnet.lnd.tcp import TcpParams

async def main():
    params = TcpParams(accept="all", accept_port={port}, reserved_ports=False)
    node, other = ulnet.Node(tcp=params), ulnet.Node(tcp=params)
    async with node, other:
        node.add_ni("127.4.8.1@tcp")
        other.add_ni("127.4.8.2@tcp")
        got, children = [], []

        def handler(message):
            got.append(bytes(message.data))
            message.release()
            if len(got) == 5:
                child = os.fork()
                if not child:
                    signal.alarm(60)
                    sys.exit(3)
                children.append(child)

        inbox = other.inbox(30, 7, handler=handler)
        for number in range(20):
            await node.put("127.4.8.2@tcp", 30, 7, b"%d" % number, timeout=60)
        (child,) = children
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            await asyncio.sleep(0.001)
        whole = got == [b"%d" % number for number in range(20)]
        print(os.waitstatus_to_exitcode(ended[1]), whole, flush=True)

with asyncio.Runner({loop}) as runner:
    runner.run(main())
"""


@pytest.mark.parametrize("loop", ["loop_factory=ulnet.new_event_loop", ""], ids=["ulnet", "asyncio"])
def test_a_fork_of_a_handler_ends_by_what_the_handler_raises_there(loop: str) -> None:
    with started(_IN_HANDLER.replace("{loop}", loop), begin="") as parent:
        out, err = parent.communicate(timeout=180)
    assert (parent.returncode, out) == (0, "3 True\n"), err

"""Server and clients of the control socket: errors, limits, deadlines, and hostile bytes."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import resource
import shutil
import signal
import socket
import stat
import struct
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from select import select
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ulnet.dlc import endpoint as endpoint_module
from ulnet.dlc import model
from ulnet.dlc import server as server_module
from ulnet.dlc.aclient import AsyncClient
from ulnet.dlc.caller import Caller, Groups, Role
from ulnet.dlc.client import Client, as_mapping
from ulnet.dlc.documents import NidItem, PeerListDocument
from ulnet.dlc.endpoint import Endpoint
from ulnet.dlc.errors import DlcError, ErrorItem
from ulnet.dlc.protocol import HEADER_SIZE, Answer, ProtocolError, decode_reply, encode_reply, encode_request
from ulnet.dlc.server import ControlServer
from ulnet.node import Node
from ulnet.node.admin import Admin


class Handler:
    """Answers `peer list`; other requests do what their name suggests."""

    def __init__(self) -> None:
        self.handled = 0
        self.cancelled = 0
        self.release = asyncio.Event()
        self.peers = 3
        self.callers: list[Caller] = []

    async def __call__(self, request: model.Request, caller: Caller) -> Answer:
        self.handled += 1
        self.callers.append(caller)
        if isinstance(request, model.PeerList):
            return Answer(PeerListDocument([NidItem(f"10.0.0.{n}@tcp") for n in range(self.peers)]))
        if isinstance(request, model.NetDel):
            raise DlcError(errno.ENOENT, "no such net", verb="del", entity="net")
        if isinstance(request, model.StatsReset):
            raise RuntimeError("a fault")
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return Answer()


@asynccontextmanager
async def serving(directory: Path, **limits: Any) -> AsyncIterator[tuple[Handler, ControlServer]]:
    handler = Handler()
    server = ControlServer(Endpoint(str(directory / "s")), handler, **limits)
    await server.start()
    try:
        yield handler, server
    finally:
        await server.close(grace=0.2)


async def in_thread(call: Callable[..., Any], *args: Any) -> Any:
    """Run a blocking client beside the server, in a thread that ends with the call."""
    loop = asyncio.get_running_loop()
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return await loop.run_in_executor(pool, call, *args)


def names(count: int) -> dict[str, Any]:
    return {"peer list": [{"nid": f"10.0.0.{n}@tcp"} for n in range(count)]}


async def test_a_client_gets_its_answers_one_after_the_other(tmp_path: Path) -> None:
    async with serving(tmp_path) as (handler, server):

        def talk() -> list[Any]:
            with Client(server.endpoint.path) as client:
                return [as_mapping(client.request(model.PeerList())) for _ in range(3)]

        assert await in_thread(talk) == [names(3)] * 3
        async with AsyncClient(server.endpoint.path) as client:
            replies = await asyncio.gather(*(client.request(model.PeerList()) for _ in range(5)))
        assert [as_mapping(reply) for reply in replies] == [names(3)] * 5
        assert handler.handled == 8


async def test_a_refusal_travels_with_errno_and_words(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, server), AsyncClient(server.endpoint.path) as client:
        reply = await client.request(model.NetDel(net="tcp9"))
        assert [(item.verb, item.entity, item.errno, item.descr) for item in reply.errors] == [
            ("del", "net", -errno.ENOENT, "no such net")
        ]
        assert as_mapping(reply) == {}


async def test_a_fault_of_the_daemon_is_an_error_and_nobody_else_notices(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as (_, server), AsyncClient(server.endpoint.path) as client:
        reply = await client.request(model.StatsReset())
        assert reply.errors[0].errno == -errno.EIO
        assert "RuntimeError: a fault" in caplog.text
        assert as_mapping(await client.request(model.PeerList())) == names(3)


async def test_an_answer_of_many_megabytes_arrives_whole(tmp_path: Path) -> None:
    async with serving(tmp_path) as (handler, server):
        handler.peers = 200_000

        def ask() -> int:
            with Client(server.endpoint.path) as client:
                return len(as_mapping(client.request(model.PeerList()))["peer list"])

        assert await in_thread(ask) == 200_000


async def test_a_deadline_ends_the_wait_and_the_late_answer_is_not_mistaken(tmp_path: Path) -> None:
    async with serving(tmp_path) as (handler, server), AsyncClient(server.endpoint.path) as client:
        with pytest.raises(DlcError, match=r"no answer from .* in 0\.5 s") as late:
            await client.request(model.StatsShow(), deadline=0.5)
        assert late.value.errno == errno.ETIMEDOUT
        assert late.value.item.entity == "statistics"
        assert as_mapping(await client.request(model.PeerList())) == names(3)

        def ask() -> None:
            with Client(server.endpoint.path) as blocking:
                blocking.request(model.StatsShow(), 0.5)

        with pytest.raises(DlcError, match=r"no answer from .* in 0\.5 s"):
            await in_thread(ask)
        while handler.cancelled < 2:
            await asyncio.sleep(0.01)


async def test_without_a_daemon_the_error_tells_how_to_start_one(tmp_path: Path) -> None:
    path = str(tmp_path / "nobody")
    with pytest.raises(DlcError, match="start it with `lnetd`") as missing:
        Client(path).request(model.NetShow())
    assert missing.value.errno == errno.ECONNREFUSED
    assert (missing.value.item.verb, missing.value.item.entity) == ("show", "net")
    leave_socket(path)
    with pytest.raises(DlcError, match="start it with `lnetd`"):
        Client(path).request(model.NetShow())
    with pytest.raises(DlcError, match="start it with `lnetd`"):
        await AsyncClient(path).request(model.NetShow())


async def test_a_path_too_long_for_a_socket_is_told_as_such(tmp_path: Path) -> None:
    path = str(tmp_path / ("x" * 200))
    with pytest.raises(DlcError, match="at most 107 bytes; name a shorter one") as blocking:
        Client(path).request(model.NetShow())
    with pytest.raises(DlcError, match="at most 107 bytes; name a shorter one") as on_asyncio:
        await AsyncClient(path).request(model.NetShow())
    assert blocking.value.errno == on_asyncio.value.errno == errno.ENAMETOOLONG


async def test_a_client_survives_that_the_daemon_drops_silent_connections(tmp_path: Path) -> None:
    async with serving(tmp_path, idle=0.05) as (_, server), AsyncClient(server.endpoint.path) as client:
        assert as_mapping(await client.request(model.PeerList())) == names(3)
        while server.sessions:
            await asyncio.sleep(0.01)
        assert as_mapping(await client.request(model.PeerList())) == names(3)

        def twice() -> list[Any]:
            with Client(server.endpoint.path) as blocking:
                first = as_mapping(blocking.request(model.PeerList()))
                assert blocking._socket is not None
                select([blocking._socket], [], [], 60)  # the daemon's hanging up makes it readable
                return [first, as_mapping(blocking.request(model.PeerList()))]

        assert await in_thread(twice) == [names(3)] * 2


async def test_where_there_are_too_many_clients_one_that_is_silent_gives_way(tmp_path: Path) -> None:
    async with serving(tmp_path, max_clients=2) as (handler, server):
        clients = [AsyncClient(server.endpoint.path) for _ in range(3)]
        for client in clients:
            assert as_mapping(await client.request(model.PeerList())) == names(3)
        assert len(server.sessions) == 2
        busy = [asyncio.create_task(client.request(model.StatsShow())) for client in clients[1:]]
        while handler.handled < 5:
            await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_unix_connection(server.endpoint.path)
        answer = await reader.read()
        assert decode_reply(answer[HEADER_SIZE:]).errors[0].errno == -errno.EBUSY
        writer.close()
        await writer.wait_closed()
        handler.release.set()
        for one in busy:
            assert not (await one).errors
        for client in clients:
            await client.close()


class Asking(Groups):
    """Whoever connects has the role that is set now."""

    role = Role.LOOK

    def caller(self, connection: socket.socket) -> Caller:
        return Caller(USER, 1, self.role)


async def test_readers_that_are_never_silent_leave_room_for_administrators(tmp_path: Path) -> None:
    """64 connections of a reader got root's lnetctl EBUSY for as long as they asked."""
    asking = Asking()
    async with serving(tmp_path, max_clients=4, groups=asking) as (handler, server):
        path = server.endpoint.path
        readers = [AsyncClient(path) for _ in range(2)]
        busy = [asyncio.create_task(client.request(model.StatsShow())) for client in readers]
        while handler.handled < 2:
            await asyncio.sleep(0.01)
        for _ in range(3):
            async with AsyncClient(path) as client:
                (refused,) = (await client.request(model.PeerList())).errors
            assert refused.errno == -errno.EBUSY
            assert "serves 2 clients that may only look" in refused.descr
        asking.role = Role.CHANGE
        roots = [AsyncClient(path) for _ in range(2)]
        for client in roots:
            assert as_mapping(await client.request(model.PeerList())) == names(3)
        assert len(server.sessions) == 4
        assert not any(one.done() for one in busy)
        handler.release.set()
        for one in busy:
            assert not (await one).errors
        asking.role = Role.LOOK
        async with AsyncClient(path) as client:  # a silent reader gives way to it, nobody else
            assert as_mapping(await client.request(model.PeerList())) == names(3)
            roles = [session.role for session in server.sessions]
            assert roles == [Role.LOOK, Role.CHANGE, Role.CHANGE, Role.LOOK]
        for client in readers + roots:
            await client.close()


async def test_who_is_refused_takes_nobodys_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path, max_clients=2) as (_, server):
        clients = [AsyncClient(server.endpoint.path) for _ in range(2)]
        for client in clients:
            assert as_mapping(await client.request(model.PeerList())) == names(3)
        served = list(server.sessions)
        server.groups = Groups()
        with monkeypatch.context() as patch:
            patch.setattr("ulnet.dlc.caller.credentials", lambda connection: (1, os.geteuid() + 4711, 4711))
            reader, writer = await asyncio.open_unix_connection(server.endpoint.path)
            assert decode_reply((await reader.read())[HEADER_SIZE:]).errors[0].errno == -errno.EACCES
        writer.close()
        assert [one for one in server.sessions if one in served] == served
        for client in clients:
            await client.close()


async def test_few_requests_begin_in_one_turn_of_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 did, one of each client. Each client has its turn, whatever those before it send meanwhile."""
    turn = 0
    begun: list[tuple[int, str]] = []
    async with serving(tmp_path) as (_, server):
        handle = server.handler

        async def watch(request: model.Request, caller: Caller) -> Answer:
            begun.append((turn, request.verb))
            return await handle(request, caller)

        server.handler = watch
        clients = [socket.socket(socket.AF_UNIX) for _ in range(20)]
        for client in clients:
            client.connect(server.endpoint.path)
        while len(server.sessions) < 20:
            await asyncio.sleep(0)
        for client in clients[:-1]:
            client.sendall(GOOD * 5)
        clients[-1].sendall(encode_request(model.NetDel(net="tcp9")))
        while len(begun) < 19 * 5 + 1:
            await asyncio.sleep(0)
            turn += 1
        for client in clients:
            client.close()
    in_a_turn = Counter(at for at, _ in begun)
    assert max(in_a_turn.values()) <= 4
    assert [verb for _, verb in begun].index("del") < 2 * 20


async def test_requests_of_who_may_only_look_keep_administrators_waiting_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All had one queue of four requests a turn: administrators waited for 30 requests of 30 ms each."""
    roles: list[Role] = []
    connected = 0

    def caller(self: Groups, connection: socket.socket) -> Caller:
        nonlocal connected
        connected += 1
        return Caller(65534, connected, Role.LOOK if connected <= 20 else Role.CHANGE)

    monkeypatch.setattr(Groups, "caller", caller)
    async with serving(tmp_path) as (_, server):
        handle = server.handler

        async def watch(request: model.Request, caller: Caller) -> Answer:
            roles.append(caller.role)
            return await handle(request, caller)

        server.handler = watch
        clients = [socket.socket(socket.AF_UNIX) for _ in range(21)]
        for client in clients:
            client.connect(server.endpoint.path)
        while len(server.sessions) < 21:
            await asyncio.sleep(0)
        for client in clients:
            client.sendall(GOOD)
        while len(roles) < 21:
            await asyncio.sleep(0)
        for client in clients:
            client.close()
    assert roles.index(Role.CHANGE) < 5


def take_all_files(held: list[int]) -> None:
    with suppress(OSError):
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))


async def test_when_files_run_out_some_are_kept_for_clients(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At a limit of 64 descriptors lnetctl got no answer while connections held all of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    async with serving(tmp_path) as (_, server):
        clients = [socket.socket(socket.AF_UNIX) for _ in range(6)]
        answers: list[bytes] = []
        loop = asyncio.get_running_loop()
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
            take_all_files(held)
            for client in clients:
                client.setblocking(False)
                client.connect(server.endpoint.path)
                client.send(encode_request(model.PeerList()))
            for client in clients[:4]:
                answers.append(await loop.sock_recv(client, 4096))
            while not caplog.records:
                await asyncio.sleep(0.01)
            clients[0].close()
            answers.append(await loop.sock_recv(clients[4], 4096))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for descriptor in held:
                os.close(descriptor)
        answers.append(await loop.sock_recv(clients[5], 4096))
        for client in clients:
            client.close()
    assert not any(decode_reply(answer[HEADER_SIZE:]).errors for answer in answers)
    lines = {record.getMessage() for record in caplog.records}
    assert lines == {"a client of the control socket has to wait: Too many open files"}
    assert caplog.records[0].exc_info is None


async def test_an_answer_that_came_before_the_request_could_leave_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon with too many clients says so and hangs up, whether it has been asked or not."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    theirs.sendall(encode_reply(Answer(errors=[ErrorItem("manage", "request", -errno.EBUSY, "full")])))
    theirs.close()
    monkeypatch.setattr(Client, "_connect", lambda self, give_up: ours)
    with Client(str(tmp_path / "s")) as client:
        assert client.request(model.PeerList()).errors[0].descr == "full"


async def test_a_client_that_goes_away_ends_its_request(tmp_path: Path) -> None:
    async with serving(tmp_path) as (handler, server):
        _, writer = await asyncio.open_unix_connection(server.endpoint.path)
        writer.write(encode_request(model.StatsShow()))
        while not handler.handled:
            await asyncio.sleep(0.01)
        writer.transport.abort()
        while not handler.cancelled:
            await asyncio.sleep(0.01)


async def test_a_request_whose_sender_has_no_more_to_say_is_answered(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, server):
        reader, writer = await asyncio.open_unix_connection(server.endpoint.path)
        writer.write(encode_request(model.PeerList()) * 2)
        writer.write_eof()
        assert (await reader.read()).count(b"peer list") == 2
        writer.close()
        await writer.wait_closed()


async def test_closing_lets_requests_under_way_finish_and_accepts_no_more(tmp_path: Path) -> None:
    async with serving(tmp_path) as (handler, server):
        client = AsyncClient(server.endpoint.path)
        under_way = asyncio.create_task(client.request(model.StatsShow()))
        while not handler.handled:
            await asyncio.sleep(0.01)
        closing = asyncio.create_task(server.close(grace=5))
        await asyncio.sleep(0)
        with pytest.raises(DlcError, match="start it with `lnetd`"):
            await AsyncClient(server.endpoint.path).request(model.PeerList())
        handler.release.set()
        assert (await under_way).errors == []
        await closing
        assert not (tmp_path / "s").exists()
        await client.close()


async def test_closing_does_not_wait_longer_than_its_grace(tmp_path: Path) -> None:
    async with serving(tmp_path) as (handler, server):
        client = AsyncClient(server.endpoint.path)
        under_way = asyncio.create_task(client.request(model.StatsShow()))
        while not handler.handled:
            await asyncio.sleep(0.01)
        await server.close(grace=0.05)
        assert handler.cancelled == 1
        with pytest.raises(DlcError, match="hung up before it answered"):
            await under_way


async def test_somebody_elses_process_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ulnet.dlc.caller.credentials", lambda connection: (1, os.geteuid() + 4711, 4711))
    monkeypatch.setattr("ulnet.dlc.client.check_daemon", lambda path, connection: None)
    monkeypatch.setattr("ulnet.dlc.aclient.check_daemon", lambda path, connection: None)
    async with serving(tmp_path) as (handler, server), AsyncClient(server.endpoint.path) as client:
        reply = await client.request(model.PeerList())
        assert handler.handled == 0
        (refused,) = reply.errors
        assert refused.errno == -errno.EACCES
        assert f"user {os.geteuid() + 4711}" in refused.descr


# Roles -----------------------------------------------------------------------------------------------------

USER, LOOKERS, CHANGERS = 54711, 54712, 54713
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="asking as another user needs root")


def ask_as(uid: int, groups: list[int], path: str, requests: list[model.Request]) -> list[int]:
    """The errnos that another user's requests end with, 0 for none; asked in a process of that user."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups(groups)
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            numbers = []
            for request in requests:
                try:
                    with Client(path) as client:
                        errors = client.request(request, 30).errors
                        numbers.append(-errors[0].errno if errors else 0)
                except DlcError as refused:
                    numbers.append(refused.errno)
            os.write(theirs, json.dumps(numbers).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as reader:
        answer = reader.read()
    os.waitpid(child, 0)
    found: list[int] = json.loads(answer)
    return found


def test_no_link_that_takes_the_sockets_place_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where others may write to its directory, one may put a link there before it has its group."""
    victim = tmp_path / "victim"
    victim.write_text("root's")
    victim.chmod(0o600)
    before = victim.stat()
    listen = endpoint_module._listen

    def listen_and_lose(path: str, *words: int) -> socket.socket:
        made = listen(path, *words)
        os.unlink(path)
        os.symlink(victim, path)
        return made

    monkeypatch.setattr(endpoint_module, "_listen", listen_and_lose)
    with suppress(ProtocolError):
        Endpoint(str(tmp_path / "s"), os.getgid() + 1).close()
    after = victim.stat()
    assert (after.st_mode, after.st_gid) == (before.st_mode, before.st_gid)


def test_the_sockets_mode_is_that_of_its_group_from_the_first(tmp_path: Path) -> None:
    for number, (group, mode) in enumerate([(None, 0o600), (os.getgid(), 0o660)]):
        made = Endpoint(str(tmp_path / f"s{number}"), group)
        assert stat.S_IMODE(os.stat(made.path).st_mode) == mode
        made.close()


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory of root's that other users can reach, as /run/ulnet is."""
    directory = Path(tempfile.mkdtemp(prefix="ulnet-test-", dir="/run"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@needs_root
async def test_members_of_a_group_may_look_and_those_of_another_may_change(
    open_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ulnet.audit")
    requests = [
        model.GlobalShow(),
        model.NetShow(),
        model.Export(),
        model.GlobalSet({"numa_range": 7}),
        model.Ping(["0@lo"]),
        model.FaultReset("drop"),
        model.AccessShow(),
        model.AccessAdd(deny=["10.0.0.66@tcp"]),
        model.AccessDel(all=True),
    ]
    groups = Groups(LOOKERS, CHANGERS)
    async with Node() as node:
        path = str(open_directory / "s")
        server = ControlServer(Endpoint(path, groups.opened_to), Admin(node).handle, groups=groups)
        await server.start()
        try:
            refused, done = errno.EACCES, 0
            looker = await in_thread(ask_as, USER, [LOOKERS], path, requests)
            assert looker == [*[done] * 3, *[refused] * 3, done, refused, refused]
            changer = await in_thread(ask_as, USER, [LOOKERS, CHANGERS], path, requests)
            assert changer == [done] * 9
            for mode in (0o660, 0o666):  # the file keeps strangers off, and so does the daemon
                os.chmod(path, mode)
                stranger = await in_thread(ask_as, USER + 100, [], path, requests)
                assert stranger == [refused] * 9
        finally:
            await server.close()
        assert node.core.settings.numa_range == 7
    audited = [record.getMessage() for record in caplog.records if record.name == "ulnet.audit"]
    lines = [json.loads(text.removeprefix("audit: ")) for text in audited]
    assert [(line["uid"], line["request"]["op"]) for line in lines] == [
        (USER, "global.set"),
        (USER, "fault.reset"),
        (USER, "access.add"),
        (USER, "access.del"),
    ]
    assert [lines[at]["changed"] for at in (0, 2, 3)] == [
        {"numa_range": [0, 7]},
        {"deny": [None, ["10.0.0.66@tcp"]]},
        {"deny": [["10.0.0.66@tcp"], None]},
    ]


# Who answers -----------------------------------------------------------------------------------------------


@needs_root
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o755])
def test_another_users_daemon_is_believed_only_where_root_put_it(open_directory: Path, mode: int) -> None:
    """A fake lnetd in a directory that others may write to was believed by root's lnetctl."""
    directory = open_directory / "ulnet"
    directory.mkdir()
    os.chown(directory, USER, USER)
    path = str(directory / "s")
    listens, tells = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setresuid(USER, USER, USER)
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path)
                listener.listen()
                os.write(tells, b"1")
                connection, _ = listener.accept()
                with suppress(OSError):  # it may have seen enough already
                    connection.sendall(encode_reply(Answer()))
                signal.pause()
        finally:
            os._exit(0)
    try:
        os.read(listens, 1)
        open_directory.chmod(mode)
        with Client(path) as client:
            if mode == 0o755:
                assert not client.request(model.PeerList(), 30).errors
            else:
                with pytest.raises(DlcError, match=f"runs as user {USER}, and others than root") as refused:
                    client.request(model.PeerList(), 30)
                assert refused.value.errno == errno.EPERM
                with pytest.raises(DlcError, match=f"runs as user {USER}"):
                    asyncio.run(AsyncClient(path).request(model.PeerList(), 30))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(listens)
        os.close(tells)


# Hostile bytes -------------------------------------------------------------------------------------------


async def _throw(path: str, data: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(data)
        writer.write_eof()
        return await asyncio.wait_for(reader.read(), 60)
    except OSError:
        return b""
    finally:
        writer.transport.abort()


GOOD = encode_request(model.PeerList())
hostile = st.one_of(
    st.binary(max_size=64),
    st.binary(max_size=64).map(lambda data: b"uLNc" + data),
    st.binary(max_size=64).map(lambda data: struct.pack("<4sI", b"uLNc", len(data)) + data),
    st.integers(0, len(GOOD)).map(lambda end: GOOD[:end]),
    st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)).map(
        lambda change: GOOD[: change[0]] + bytes([change[1]]) + GOOD[change[0] + 1 :]
    ),
    st.dictionaries(st.text(max_size=8), st.none() | st.integers() | st.text(max_size=8))
    .map(lambda value: json.dumps({"version": 1, "request": value}).encode())
    .map(lambda data: struct.pack("<4sI", b"uLNc", len(data)) + data),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(hostile, min_size=1, max_size=10))
def test_whatever_bytes_arrive_others_are_served(tmp_path: Path, attacks: list[bytes]) -> None:
    async def attack() -> None:
        path = str(tmp_path / "s")
        async with serving(tmp_path, max_request=1000) as (_, server), AsyncClient(path) as neighbour:
            assert as_mapping(await neighbour.request(model.PeerList())) == names(3)
            answers = await asyncio.gather(*(_throw(path, data) for data in attacks))
            for answer in answers:
                while answer:
                    size = struct.unpack_from("<4sI", answer)[1]
                    decode_reply(answer[HEADER_SIZE : HEADER_SIZE + size])
                    answer = answer[HEADER_SIZE + size :]
            assert as_mapping(await neighbour.request(model.PeerList())) == names(3)
            while len(server.sessions) > 1:
                await asyncio.sleep(0.001)

    asyncio.run(attack())


async def test_half_a_frame_holds_a_place_no_longer_than_the_idle_time(tmp_path: Path) -> None:
    async with serving(tmp_path, idle=0.05) as (_, server):
        reader, writer = await asyncio.open_unix_connection(server.endpoint.path)
        writer.write(GOOD[:-1])
        assert await reader.read() == b""
        writer.transport.abort()


async def test_a_client_that_does_not_read_is_dropped(tmp_path: Path) -> None:
    async with serving(tmp_path, idle=0.05) as (handler, server):
        handler.peers = 200_000
        _, writer = await asyncio.open_unix_connection(server.endpoint.path, limit=1)
        writer.write(GOOD * 50)
        while not handler.handled:
            await asyncio.sleep(0.01)
        while server.sessions:
            await asyncio.sleep(0.01)
        assert handler.handled == 1
        writer.transport.abort()


async def test_answers_that_nobody_reads_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Sixty such clients held 43 MB."""
    monkeypatch.setattr(server_module, "_MOST_UNREAD", 3_000_000)
    async with serving(tmp_path) as (handler, server):
        handler.peers = 50_000  # 1.2 MB
        writers = []
        for count in range(1, 11):
            _, writer = await asyncio.open_unix_connection(server.endpoint.path, limit=1)
            writer.write(GOOD)
            writers.append(writer)
            while handler.handled < count:
                await asyncio.sleep(0.01)
            while not list(server.sessions)[-1].unread:
                await asyncio.sleep(0)
        assert sum(session.unread for session in server.sessions) <= 3_000_000
        assert any("does not read its answer" in record.getMessage() for record in caplog.records)
        async with AsyncClient(server.endpoint.path) as client:
            assert as_mapping(await client.request(model.PeerList())) == names(50_000)
        for writer in writers:
            writer.transport.abort()


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"uLNc\xff\xff\xff\xff", b"uLNc\2\0\0\0{}"]
)
def test_a_server_that_is_not_lnetd_gives_an_error_and_no_hang(tmp_path: Path, answer: bytes) -> None:
    import threading

    path = str(tmp_path / "other")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with Client(path) as client, pytest.raises(DlcError) as refused:
            client.request(model.NetShow(), 60)
        thread.join()
    assert refused.value.errno in (errno.ECONNRESET, errno.EPROTO, errno.EMSGSIZE)


# The socket itself ---------------------------------------------------------------------------------------


def test_the_socket_and_its_directory_are_the_owners_alone(tmp_path: Path) -> None:
    endpoint = Endpoint(str(tmp_path / "run" / "s"))
    try:
        assert stat.S_IMODE(os.stat(endpoint.path).st_mode) == 0o600
        assert stat.S_IMODE(os.stat(tmp_path / "run").st_mode) == 0o700
    finally:
        endpoint.close()
    assert not os.path.exists(endpoint.path)


def test_two_daemons_cannot_share_a_socket(tmp_path: Path) -> None:
    first = Endpoint(str(tmp_path / "s"))
    try:
        with pytest.raises(ProtocolError, match="another lnetd answers on") as refused:
            Endpoint(first.path)
        assert refused.value.errno == errno.EADDRINUSE
        assert os.path.exists(first.path)
    finally:
        first.close()


def leave_socket(path: str) -> None:
    """What a daemon that died leaves: a socket without listener."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)


def test_a_dead_daemons_socket_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    leave_socket(path)
    with socket.socket(socket.AF_UNIX) as client:
        endpoint = Endpoint(path)
        client.connect(path)
        endpoint.close()


def test_a_daemon_does_not_take_the_socket_of_its_successor_along(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    first = Endpoint(path)
    os.unlink(path)
    second = Endpoint(path)
    first.close()
    assert os.path.exists(path)
    second.close()
    assert not os.path.exists(path)


def test_a_file_in_the_sockets_place_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("precious")
    with pytest.raises(ProtocolError, match="is not a socket"):
        Endpoint(str(path))
    assert path.read_text() == "precious"


def test_a_path_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProtocolError, match="at most 107 bytes"):
        Endpoint(str(tmp_path / ("x" * 120)))


def test_a_directory_of_another_user_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        os.chown(tmp_path, 4711, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(ProtocolError, match="belongs to user"):
        Endpoint(str(tmp_path / "s"))


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ProtocolError, match=r"cannot be made .* name another with --socket"):
        Endpoint(str(tmp_path / "file" / "s"))

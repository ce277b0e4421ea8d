"""What a handler gets: one call, with its data, its client, its deadline, and bulk."""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Any, Final

from ulnet.core.md import Buffer
from ulnet.rpc.admission import Admission
from ulnet.rpc.bulk import PieceLimits, Progress, flat, move
from ulnet.rpc.checksum import Checksum
from ulnet.rpc.errors import RpcError
from ulnet.rpc.new_memory import new_memory
from ulnet.wire.rpc import CHECK, NO_DEADLINE, XXH3, Bulk, CallFrame

if TYPE_CHECKING:
    from ulnet.nid import Nid
    from ulnet.node.turns import Turns
    from ulnet.rpc.lane import Lane
    from ulnet.rpc.service import Method
    from ulnet.rpc.sessions import Session
    from ulnet.rpc.under_way import UnderWay

__all__ = ["Call"]

_CHUNKS: Final = 16  # of a stream, that are under way at once


class Call:
    """A call under way. `data` are the client's, `client` is its primary NID, `deadline` the time of the
    running loop at which the client gives up (None: it does not).
    """

    __slots__ = (
        "admission",
        "begun",
        "checksum",
        "chunks",
        "client",
        "data",
        "deadline",
        "due_at",
        "frame",
        "given_up",
        "heard_at",
        "lane",
        "loop",
        "lost",
        "method",
        "news",
        "over",
        "overdue",
        "pieces",
        "pushed",
        "reply",
        "room",
        "session",
        "size",
        "started_at",
        "task",
        "turns",
        "under_way",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        session: Session[Call],
        method: Method,
        frame: CallFrame,
        lane: Lane,
        pieces: PieceLimits,
        admission: Admission[Call] | None,
        room: UnderWay,
        turns: Turns,
        now: float,
    ) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        self.session: Session[Call] = session
        self.method: Method = method
        self.frame: CallFrame = frame
        self.client: Nid = session.client
        data = frame.data
        if not isinstance(data, bytes):
            data = frame.data = bytes(data)  # of its own, not of the inbox
        self.data: bytes | bytearray = data
        self.deadline: float | None = None if frame.left == NO_DEADLINE else now + frame.left / 1000
        self.pieces: PieceLimits = pieces
        self.admission: Admission[Call] | None = admission  # that it takes a place and bytes of
        self.room: UnderWay = room  # for what is pulled into new memory
        self.turns: Turns = turns  # in which its stream goes on
        self.lane: Lane = lane  # from the NI that was asked to the NID that asked
        self.size: int = 0  # as it was admitted
        self.started_at: float = now
        self.heard_at: float = now  # when the client, or its memory for replies, was known to be there
        self.task: asyncio.Task[Any] | None = None  # that runs its handler, or fetches its body
        self.due_at: float = 0.0  # when the server looks at it again
        self.begun: bool = False  # its handler
        self.given_up: bool = False
        self.overdue: bool = False
        self.over: bool = False
        self.pushed: int = 0
        self.reply: bytes = b""  # its frame
        # Of what was pushed.
        self.checksum: Checksum | None = Checksum(frame.flags & XXH3 != 0) if frame.flags & CHECK else None
        self.chunks: int = 0
        self.under_way: int = 0  # chunks whose ACK has not come
        self.news: asyncio.Event | None = None  # a stream: of credit, or of chunks that have arrived
        self.lost: str = ""  # why no further chunk is sent: it would come behind some that were not

    def __repr__(self) -> str:
        return f"<call of {self.method.name} by {self.client}>"

    # For handlers ----------------------------------------------------------------------------------

    @property
    def into_size(self) -> int:
        """The bytes of memory that the client gave for `push`."""
        sink = self.frame.sink
        return sink.length if sink is not None else 0

    @property
    def bulk_size(self) -> int:
        """The bytes of memory that the client gave for `pull`."""
        source = self.frame.source
        return source.length if source is not None else 0

    def time_left(self) -> float | None:
        """Seconds until the client gives up; None: it does not."""
        if self.deadline is None:
            return None
        return self.deadline - self.loop.time()

    async def push(
        self, memory: Buffer, *, offset: int | None = None, progress: Progress | None = None
    ) -> None:
        """Write memory into the client's (`into`), of any size; by default behind what was pushed before.

        The memory must not change meanwhile. `progress(moved, total)` is called for each piece. Raises
        LNetError.
        """
        view = flat(memory)
        try:
            at = self.pushed if offset is None else offset
            sink = self._lent(self.frame.sink, "into")
            if self.frame.flags & CHECK and at != self.pushed:
                raise RpcError(
                    errno.EINVAL, f"push at {at}: with a checksum each push begins where the last one ended"
                )
            await self._move(sink, view, at, True, progress)
            if self.checksum is not None:
                await self.checksum.add(view)
            self.pushed = max(self.pushed, at + view.nbytes)
        finally:  # what is raised holds this frame, and must not hold the memory
            view.release()

    async def pull(
        self,
        into: bytearray | memoryview | None = None,
        *,
        offset: int = 0,
        most: int = 256 << 20,
        progress: Progress | None = None,
    ) -> bytearray | memoryview:
        """Read the client's bulk, from `offset` on, into memory of the handler's or into new memory.

        New memory has at most `most` bytes: the client says how many there are. It waits as long as other
        bulk of that client that is coming leaves no room. A checksum is compared where all is read at once.
        Raises LNetError.
        """
        source = self._lent(self.frame.source, "bulk")
        if into is not None:
            await self._read(source, into, offset, progress)
            return into
        size = max(source.length - offset, 0)
        if size > most:
            raise RpcError(
                errno.EMSGSIZE,
                f"bulk of {size} bytes: at most {most} are taken into new memory; "
                "pull it into memory of your own, or piece by piece",
            )
        room, client = self.room, self.session.owner
        while not room.may_stream(client):
            await room.wait(client, asyncio.Event())
        room.add(client, size)
        try:
            memory = new_memory(size)
            await self._read(source, memory, offset, progress)
        finally:
            room.ended(client, size)
        return memory

    async def fetch_body(self) -> bytes | bytearray:
        """The data of the request, which were admitted with their size. Raises LNetError."""
        source = self._lent(self.frame.source, "bulk")
        memory = new_memory(source.length)
        await self._read(source, memory, 0, None)
        return memory if isinstance(memory, bytearray) else bytes(memory)

    async def _read(
        self, source: Bulk, memory: bytearray | memoryview, offset: int, progress: Progress | None
    ) -> None:
        view = flat(memory)
        try:
            await self._move(source, view, offset, False, progress)
            if self.frame.flags & CHECK and view.nbytes == source.length:
                checksum = Checksum(self.frame.flags & XXH3 != 0)
                await checksum.add(view)
                if checksum.value != source.checksum:
                    words = f"{checksum.value:#010x}: it is {source.checksum:#010x}"
                    raise RpcError(errno.EILSEQ, f"bulk arrived with the checksum {words}")
        finally:  # as in `push`
            view.release()

    @staticmethod
    def _lent(bulk: Bulk | None, word: str) -> Bulk:
        if bulk is None:
            raise RpcError(errno.EINVAL, f"the client lends no memory: it has to give {word}=")
        return bulk

    async def _move(
        self, bulk: Bulk, view: memoryview, offset: int, push: bool, progress: Progress | None
    ) -> None:
        await move(
            self.lane.lanes.port,
            self.session.client,
            bulk,
            view,
            offset,
            push=push,
            limits=self.pieces,
            time_left=self.time_left,
            others_wait=self._others_wait,
            progress=progress,
            method=self.method.name,
        )

    def _others_wait(self, since: float) -> bool:
        """Whether other clients wait for what it has, or found no room since that time."""
        return self.admission is not None and self.admission.others_wait(self.session.owner, since)

    # For the server --------------------------------------------------------------------------------

    async def next_chunk(self, under_way: UnderWay) -> int:
        """The number of the next chunk, once there is room for it here, there and in what is `under_way`,
        and it is its turn. Raises RpcError(ENOBUFS) once some were `lost`.
        """
        news = self.news
        assert news is not None
        client = self.session.owner
        its_turn = False
        while True:
            if self.lost:
                raise RpcError(errno.ENOBUFS, self.lost)
            if self.chunks >= self.frame.credit or self.under_way >= _CHUNKS:
                news.clear()
                await news.wait()
            elif not under_way.may_stream(client):
                await under_way.wait(client, news)
            elif its_turn or self.turns.take():
                break
            else:
                await self.turns.wait(client)
                its_turn = True
        self.chunks += 1
        self.under_way += 1
        return self.chunks - 1

    async def all_arrived(self) -> None:
        """Wait until the client has all chunks."""
        news = self.news
        assert news is not None
        while self.under_way:
            news.clear()
            await news.wait()

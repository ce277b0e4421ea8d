"""One comm: messages of Dask between two processes, in their order, each made of frames."""

from __future__ import annotations

import asyncio
import errno
import struct
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, Final

import dask.config
import dask.utils
from distributed.comm.core import Comm, CommClosedError
from distributed.comm.utils import from_frames, to_frames
from distributed.protocol.utils import host_array
from distributed.system import MEMORY_LIMIT
from distributed.utils import ensure_memoryview, nbytes

from ulnet.dask.assembly import EAGER, EAGER_PIECE, Assembly
from ulnet.dask.rails import is_loopback
from ulnet.dask.settings import patience
from ulnet.rpc import Call, RpcError

if TYPE_CHECKING:
    from ulnet.dask.endpoint import Endpoint
    from ulnet.dask.partner import Partner

__all__ = ["HEAD", "MORE", "MOST_FRAMES", "PART", "UlnetComm"]

# The receiver's number of the comm, the number of the message, its frames (and MORE where the next message
# goes on with frames of the same message of Dask); those of so many bytes follow.
HEAD: Final = struct.Struct("<QQII")
# Comm, message, which frame; how many bytes of it are sent eagerly, or where in it some of them belong.
PART: Final = struct.Struct("<QQII")
SMALL: Final = 12288  # bytes of frames that travel with their head
TINY: Final = 4096  # frames beside large ones that do so
SHORT: Final = 65536  # large ones of fewer bytes in the mean are joined
JOINED: Final = 32 << 20  # bytes at most that are copied into one piece of memory
UNDER_WAY: Final = 64  # messages that the other side has not confirmed
KEPT: Final = 256 << 20  # bytes that may wait to be read; what follows stays with its sender
AHEAD: Final = 4096  # messages that may begin to arrive before the one that is read next is whole
MOST_FRAMES: Final = 65536  # in a message: its sizes are looked at in one turn of the loop
MORE: Final = 1 << 31
FRAME: Final = 200  # bytes that a frame takes beside its own
PIECE: Final = 400  # bytes that a piece takes so, before its frame has memory
MESSAGE: Final = 1200  # bytes that a message takes beside its frames, until it is read
_PARTS: Final = SMALL // 8  # frames of a message that come by themselves: its sizes are one small message
_END: Final = 0xFFFFFFFF  # frames of the message that ends a comm
_ALL: Final = 1 << 64  # frames of any size are within
_ABORT: Final = (1 << 64) - 1  # the number of one that ends it at once


class UlnetComm(Comm):
    """A comm over LNet. Small messages are one call; large frames are bulk, which goes over all rails."""

    max_shard_size: ClassVar[int] = dask.utils.parse_bytes(dask.config.get("distributed.comm.shard"))

    def __init__(
        self, endpoint: Endpoint, partner: Partner, local: str, remote: str, number: int, deserialize: bool
    ) -> None:
        self._why = ""  # it is closed
        self._local_addr = local
        self._peer_addr = remote
        super().__init__(deserialize=deserialize)
        self.endpoint = endpoint
        self.partner = partner
        self.number = number
        self.theirs: int = 0  # its number there, once it is connected
        self._loop = asyncio.get_running_loop()
        self._sent = 0
        self._calls: set[asyncio.Task[Any]] = set()
        self._confirmed = 0  # calls that have ended
        self._arriving: dict[int, Assembly] = {}
        self._ends_at = -1
        self._next = 0  # the number of the message that is to be read next
        self._begun: list[memoryview] = []  # frames of whole sections, of a message that has more
        self._begun_bytes = 0
        self._whole: deque[tuple[list[memoryview] | None, int]] = (
            deque()
        )  # with the bytes of each; None: the end
        self._kept = 0  # bytes of those
        self._taken = 0  # bytes of all that is here, as its endpoint and its partner count them
        self._coming = 0  # bytes that are announced, of calls that fetch them
        self._fetching: set[Call] = set()  # those that wait for what they fetch
        self._news: asyncio.Future[None] | None = None  # somebody waits to read
        self._room: asyncio.Event = asyncio.Event()
        self._room.set()

    # What Dask calls -------------------------------------------------------------------------------

    @property
    def local_address(self) -> str:
        """Its own address."""
        return self._local_addr

    @property
    def peer_address(self) -> str:
        """The other side's."""
        return self._peer_addr

    @property
    def same_host(self) -> bool:
        """Whether both are on this host; each process has an address of its own there."""
        ours, theirs = (
            address.rpartition("://")[2].rpartition(":")[0] for address in (self._local_addr, self._peer_addr)
        )
        return ours == theirs or (is_loopback(ours) and is_loopback(theirs))

    def begin(self, theirs: int) -> None:
        """It is connected: its number at the other side is known."""
        self.theirs = theirs

    def closed(self) -> bool:
        """Whether it is closed."""
        return bool(self._why)

    async def read(self, deserializers: Any = None) -> Any:
        """The next message. Raises CommClosedError."""
        while not self._whole:
            if self._why:
                raise CommClosedError(f"{self!r}: {self._why}")
            self._news = self._loop.create_future()
            try:
                await self._news
            finally:
                self._news = None
        frames, size = self._whole.popleft()
        if frames is None:
            self._why = ""  # whatever came behind the end
            self._close("closed by the other side")
            raise CommClosedError(f"{self!r}: {self._why}")
        self._kept -= size
        self._take(-size)
        if self._kept < KEPT:
            self._room.set()
        try:
            return await from_frames(
                frames,
                deserialize=self.deserialize,
                deserializers=deserializers,
                allow_offload=self.allow_offload,
            )
        except EOFError:
            self.abort()
            raise CommClosedError(f"{self!r}: a message was cut short") from None

    async def write(self, msg: Any, serializers: Any = None, on_error: str = "message") -> int:
        """Send a message; one that is large the other side has afterwards. Raises CommClosedError."""
        self._check_open()
        frames = await to_frames(
            msg,
            allow_offload=self.allow_offload,
            serializers=serializers,
            on_error=on_error,
            context={"sender": self.local_info, "recipient": self.remote_info, **self.handshake_options},
            frame_split_size=self.max_shard_size,
        )
        self._check_open()
        large = []
        for at in range(0, len(frames), MOST_FRAMES):
            section = [ensure_memoryview(frame) for frame in frames[at : at + MOST_FRAMES]]
            large += self._send(section, more=at + MOST_FRAMES < len(frames))
        if large:
            await asyncio.wait(large)
        while len(self._calls) > UNDER_WAY and not self._why:
            await asyncio.wait(self._calls, return_when=asyncio.FIRST_COMPLETED)
        if large or self._why:
            self._check_open()
        return sum(map(nbytes, frames))

    async def close(self) -> None:
        """Close it once what was written is there. Where nothing of it moves any more, it is aborted."""
        if not self._why:
            self._why = "closed here"
            try:
                while self._calls:
                    before = self._state
                    await asyncio.wait(self._calls, timeout=patience())
                    if self._calls and self._state == before:
                        self.abort()
                        return
            except asyncio.CancelledError:
                self.abort()
                raise
            self._say_end(self._sent if self._is_known else _ABORT)  # it may have broken off meanwhile
        self._close("closed here")

    @property
    def _state(self) -> tuple[int, int]:
        """What changes while the other side takes what was written, on whichever comm: bulk is one queue."""
        return self._confirmed, self.partner.pieces

    def abort(self) -> None:
        """Close it at once: what is under way ends."""
        if not self._why or self._calls:  # `close` may wait for them
            for call in self._calls:
                call.cancel()
            self._say_end(_ABORT)
        self._close("aborted here")

    # Out -------------------------------------------------------------------------------------------

    def _send(self, frames: list[memoryview], more: bool) -> list[asyncio.Task[Any]]:
        """Begin the calls of the next message; what comes back is to be waited for."""
        number, self._sent = self._sent, self._sent + 1
        sizes = [frame.nbytes for frame in frames]
        total, count = sum(sizes), len(sizes) | (MORE if more else 0)
        of_sizes = struct.pack(f"<{len(sizes)}Q", *sizes)
        small = total + len(of_sizes) <= SMALL
        limit = SMALL if small else TINY
        within = [frame for frame in frames if frame.nbytes <= limit]
        large = [(index, frame) for index, frame in enumerate(frames) if frame.nbytes > limit]
        head = b"".join((HEAD.pack(self.theirs, number, count, limit), of_sizes, *within))
        if small:
            self._begin("message", head)
            return []
        if len(head) > SMALL or (total < JOINED and total < len(large) * SHORT):
            whole = b"".join((HEAD.pack(self.theirs, number, count, JOINED), of_sizes, *frames))
            return [self._begin("joined", PART.pack(self.theirs, number, 0, 0), whole)]
        # The other side asks for bulk, and its question takes as long as what is queued before it. Where no
        # bulk is under way yet, the beginning of the first frame is sent eagerly meanwhile, before all else.
        first, beginning = large[0]
        eager = 0 if self.partner.lends else min(beginning.nbytes, EAGER)
        calls = [self._begin_piece(number, first, beginning, 0, eager)] if eager else []
        calls.append(self._begin("message", head))
        for index, frame in large:
            sent = eager if index == first else 0
            calls.append(self._begin("part", PART.pack(self.theirs, number, index, sent), frame[sent:]))
        if eager > EAGER_PIECE:
            calls.append(self._keep(self._send_more(number, first, beginning, eager)))
        return calls

    async def _send_more(self, number: int, index: int, frame: memoryview, eager: int) -> None:
        """Send all but the first of the pieces that are sent eagerly, each in a turn of its own."""
        calls = []
        for at in range(EAGER_PIECE, eager, EAGER_PIECE):
            calls.append(self._begin_piece(number, index, frame, at, eager))
            await asyncio.sleep(0)
        await asyncio.wait(calls)

    def _begin_piece(
        self, number: int, index: int, frame: memoryview, at: int, eager: int
    ) -> asyncio.Task[Any]:
        """Send a piece eagerly, which is a part of the first `eager` bytes of a frame."""
        where = PART.pack(self.theirs, number, index, at)
        return self._begin("eager", b"".join((where, frame[at : min(at + EAGER_PIECE, eager)])))

    def _begin(self, method: str, data: bytes, bulk: memoryview | bytes = b"") -> asyncio.Task[Any]:
        return self._keep(self.partner.call(method, data, bulk))

    def _keep(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        call = self._loop.create_task(work)
        self._calls.add(call)
        call.add_done_callback(self._called)
        return call

    def _called(self, call: asyncio.Task[Any]) -> None:
        self._calls.discard(call)
        self._confirmed += 1
        if not call.cancelled():
            failed = call.exception()
            if failed is not None:
                self.break_off(f"{type(failed).__name__}: {failed}")

    def _say_end(self, number: int) -> None:
        """Tell the other side that nothing more comes behind that message."""
        data = HEAD.pack(self.theirs, number, _END, 0)
        self.endpoint.in_background(self.partner.call("message", data))

    # In --------------------------------------------------------------------------------------------

    async def message(self, number: int, count: int, limit: int, data: memoryview) -> None:
        """The sizes of a message's frames, and those of at most `limit` bytes. Raises RpcError."""
        if data.nbytes > SMALL:
            raise RpcError(errno.EBADMSG, f"{data.nbytes} bytes in one call: lend what is more than {SMALL}")
        if count != _END:
            await self._have_room(data.nbytes)
        self._announced(number, count, limit, data)
        if limit == SMALL:
            await self.partner.wait_for_others()  # the writer of a small message waits for no answer

    def _announced(self, number: int, count: int, limit: int, data: memoryview) -> None:
        if count == _END:
            if number == _ABORT:
                self.break_off("aborted by the other side")
                return
            if self._ends_at >= 0:
                raise RpcError(errno.EBADMSG, f"the comm ends at message {self._ends_at} already")
            self._ends_at = number
            self._assembly(number).sizes = ()
            self._advance()
            return
        count, more = count & ~MORE, bool(count & MORE)
        if count > MOST_FRAMES:
            raise RpcError(errno.EBADMSG, f"{count} frames in one message: it may have {MOST_FRAMES}")
        if 8 * count > data.nbytes:
            raise RpcError(errno.EBADMSG, f"{data.nbytes} bytes are too few for the sizes of {count} frames")
        assembly = self._assembly(number)
        if assembly.sizes is not None:
            raise RpcError(errno.EBADMSG, f"message {number} was announced already")
        beyond = max(assembly.parts, default=-1)
        if beyond >= count:
            raise RpcError(errno.EBADMSG, f"frame {beyond} is beyond the {count} of message {number}")
        at = 8 * count
        sizes = struct.unpack_from(f"<{count}Q", data)
        self._may_come(sum(sizes) - assembly.fetched)
        self._must_fit(data.nbytes + FRAME * count)
        within = {}
        for index, size in enumerate(sizes):
            if size <= limit:
                within[index] = data[at : at + size]
                at += size
        if at > data.nbytes:
            raise RpcError(
                errno.EBADMSG, f"{data.nbytes} bytes are too few for the frames: {at} are announced"
            )
        assembly.frames.update(within)
        assembly.sizes, assembly.more = sizes, more
        self._take(data.nbytes + FRAME * count, assembly)
        self._advance()

    async def part(self, number: int, index: int, eager: int, call: Call) -> None:
        """A large frame of a message: fetch all but the `eager` bytes that are sent so. Raises RpcError."""
        await self._have_room()
        assembly, size = self._assembly(number), eager + call.bulk_size
        sizes = assembly.sizes
        if (
            index >= _PARTS
            or eager > EAGER
            or index in assembly.frames
            or index in assembly.parts
            or (sizes is not None and size != (sizes[index] if index < len(sizes) else None))
        ):
            raise RpcError(
                errno.EBADMSG, f"frame {index} of {size} bytes is none of those that were announced"
            )
        due = size - (assembly.early if eager else 0)  # what came early is counted
        self._may_come(due)
        self._coming += due
        assembly.fetched += due
        assembly.parts.add(index)
        try:
            frame: memoryview = host_array(size)
            if eager:
                assembly.expect_eager(index, frame, eager)
            try:
                await self._fetch(call, frame[eager:], due - call.bulk_size)
                self._must_fit(due + FRAME)
            except BaseException:
                if eager:
                    assembly.expect_no_eager()
                raise
        except BaseException:
            assembly.fetched -= due
            assembly.parts.discard(index)
            raise
        finally:
            self._coming -= due
        if self._arriving.get(number) is not assembly:
            return  # the comm was closed meanwhile
        self._take(due + FRAME, assembly)
        assembly.pulled(index, frame)
        self._advance()

    async def eager(self, number: int, offset: int, data: memoryview) -> None:
        """A piece of a large frame that was sent eagerly. Raises RpcError."""
        await self._have_room(data.nbytes)
        assembly, early = self._assembly(number), 0
        if not assembly.announced:
            early = data.nbytes  # nothing else has counted it
            self._must_fit(early + PIECE)
        assembly.add_eager(offset, data)
        if early:
            self._take(early + PIECE, assembly)
            assembly.fetched += early
        self._advance()

    async def joined(self, number: int, call: Call) -> None:
        """A message of many short frames: fetch all at once."""
        await self._have_room()
        size = call.bulk_size
        self._may_come(size)
        self._coming += size
        try:
            data: memoryview = host_array(size)
            await self._fetch(call, data)
        finally:
            self._coming -= size
        if data.nbytes < HEAD.size:
            raise RpcError(errno.EBADMSG, f"{data.nbytes} bytes are too few for a message")
        _, _, count, _ = HEAD.unpack_from(data)
        self._announced(number, count, _ALL, data[HEAD.size :])

    async def _fetch(self, call: Call, memory: memoryview, eager: int = 0) -> None:
        """All that a call lends. It is counted as it comes, until it is whole, and so many bytes that are
        sent eagerly from now on. The end of the comm ends it. Raises RpcError.
        """
        here = 0

        def came(size: int) -> None:
            nonlocal here
            self._must_fit(size)
            here += size
            self._count(size)

        self._fetching.add(call)
        try:
            came(eager)
            if memory.nbytes:
                await self.partner.queue.fetch(call, memory, came)
        except asyncio.CancelledError:
            self._must_be_known()
            raise
        finally:
            self._fetching.discard(call)
            self._count(-here)

    def _assembly(self, number: int) -> Assembly:
        self._must_be_known()
        assembly = self._arriving.get(number)
        if assembly is None:
            if not self._next <= number < self._next + AHEAD:
                raise RpcError(errno.EBADMSG, f"message {number} is none of those that are expected")
            if number != self._ends_at:  # the end has room always
                self._must_fit(MESSAGE)
            assembly = self._arriving[number] = Assembly()
            self._take(MESSAGE, assembly)
        return assembly

    def _may_come(self, size: int) -> None:
        """Before it is fetched: what this comm announces can be true. Raises RpcError.

        It is not counted for other comms: to announce costs the partner nothing, and is to stop nobody.
        """
        self._must_fit(size, MEMORY_LIMIT - self._coming)

    def _must_fit(self, size: int, most: int = MEMORY_LIMIT) -> None:
        """Before memory is taken: a partner has half of what the others leave, at most. Raises RpcError."""
        taken, own = self.endpoint.taken, self.partner.taken
        most = max(min(most, (MEMORY_LIMIT - taken - own) // 2), 0)
        if size > most:
            text = (
                f"{size} bytes are announced, and of the {MEMORY_LIMIT} of this process {most} more "
                "may come from that one: send less at once"
            )
            raise RpcError(errno.ENOMEM, text)

    @property
    def _is_known(self) -> bool:
        return self.endpoint.comms.get(self.number) is self

    def _must_be_known(self) -> None:
        if not self._is_known:
            raise RpcError(errno.ENOTCONN, "this comm is closed")

    def _take(self, size: int, assembly: Assembly | None = None) -> None:
        """Count so many bytes, of that message, until it is read or the comm is closed."""
        if assembly is not None:
            assembly.counted += size
        if self._is_known:
            self._taken += size
            self._count(size)

    def _count(self, size: int) -> None:
        self.endpoint.taken += size
        self.partner.taken += size

    async def _have_room(self, held: int = 0) -> None:
        """Wait while too much that is whole is not read; so many bytes wait, too. Raises RpcError."""
        self._must_fit(held)
        self._count(held)
        try:
            while self._kept >= KEPT and not self._why:
                self._room.clear()
                await self._room.wait()
        finally:
            self._count(-held)

    def _advance(self) -> None:
        """Pass on what is whole, in order."""
        arriving = self._arriving
        while (assembly := arriving.get(self._next)) is not None and assembly.whole:
            del arriving[self._next]
            if self._next == self._ends_at:
                self._whole.append((None, 0))
            else:
                self._begun += [assembly.frames[index] for index in range(len(assembly.frames))]
                self._begun_bytes += assembly.counted
                if not assembly.more:
                    self._whole.append((self._begun, self._begun_bytes))
                    self._kept += self._begun_bytes
                    self._begun, self._begun_bytes = [], 0
            self._next += 1
            self._wake()

    # The end ---------------------------------------------------------------------------------------

    def break_off(self, why: str) -> None:
        """The other side is gone, or ended it abruptly; what is whole can still be read."""
        self._close(why)

    def _close(self, why: str) -> None:
        self._why = self._why or why
        self._arriving.clear()
        self._take(-self._taken)
        self._room.set()
        self._wake()
        self.endpoint.forget(self)
        for call in self._fetching:
            if call.task is not None:
                call.task.cancel()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _check_open(self) -> None:
        if self._why:
            raise CommClosedError(f"{self!r}: {self._why}")

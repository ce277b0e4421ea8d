"""One TCP connection read as LNet: connection request, HELLO, then frames (spec wire-socklnd.md)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from ulnet.capture.describe import (
    Requests,
    is_ping,
    looks_like_ping_info,
    say_hello,
    say_message,
    say_noop,
    say_request,
)
from ulnet.capture.describe_bond import looks_like_bond
from ulnet.capture.describe_rpc import is_rpc, looks_like_rpc, rpc_prefix
from ulnet.capture.describe_selftest import is_selftest, looks_like_selftest
from ulnet.capture.event import Say, Saying
from ulnet.capture.packet import Endpoint
from ulnet.capture.reader import ANY, Missing, Reader, Script, Skip
from ulnet.capture.sync import SCAN_KEEP, find_frame, is_small_header
from ulnet.wire import acceptor, socklnd
from ulnet.wire.acceptor import AcceptorError, ConnRequest
from ulnet.wire.bond import kind_of
from ulnet.wire.errors import ByteOrder, WireError
from ulnet.wire.lnet import HEADER_SIZE, LARGE_HEADER_SIZE, Header, MsgType, unpack_header
from ulnet.wire.selftest import MESSAGE_SIZE
from ulnet.wire.socklnd import FRAME_HEADER_SIZE, FrameType, Hello, unpack_frame_header

__all__ = ["Side"]

_MAX_PING_INFO: Final = 256 << 10  # more than 4096 NIs can fill
_MAX_SEARCH: Final = 256 << 10  # how far to look for LNet on ports that are not LNet's

Step = Generator[int | Skip, bytes, None]


class _LostError(Exception):
    """What comes next cannot be told from what came before."""


class _NotLnetError(Exception):
    """This is another protocol's connection."""


class Side:
    """What one end of a connection says.

    `fresh`: the capture has the connection's first byte; otherwise frames are looked for.
    `expected`: this is an LNet port, so bytes that are not LNet are worth a line.
    """

    def __init__(
        self, src: Endpoint, dst: Endpoint, say: Say, requests: Requests, *, fresh: bool, expected: bool
    ) -> None:
        self._src = src
        self._dst = dst
        self._say = say
        self._requests = requests
        self._expected = expected
        self._version = 3
        self._byteorder: ByteOrder = "little"
        self._large: bool | None = False
        self._synced = fresh
        self._lost = "" if fresh else "joined mid-connection"  # why frames are being looked for
        self._searched = 0
        self._doing = "a connection request" if expected else ""
        self._begun = False  # part of what is being done has been read
        self.is_lnet: bool = False  # something of LNet was seen
        self.reader: Reader = Reader(self._script())

    def end(self, why: str) -> None:
        """Nothing more comes: say what stays unfinished."""
        had, lacking = self.reader.waiting
        if not self._synced:
            if self._searched and (self._expected or self.is_lnet):
                text = f"cannot follow ({self._lost}): no LNet message in {self._searched} B"
                self._tell(Saying("cannot-follow", text, {"reason": self._lost, "bytes": self._searched}))
        elif self._doing and self.reader.active and (had or self._begun):
            text = f"{why} in the middle of {self._doing}: {lacking} B missing"
            self._tell(Saying("incomplete", text, {"of": self._doing, "missing": lacking}))
        self._searched = 0
        self._doing = ""

    def _tell(self, saying: Saying) -> None:
        self.is_lnet = True
        self._say(self._src, self._dst, saying)

    def _script(self) -> Script:
        try:
            if self._synced and not (yield from self._begin()):
                return
        except Missing as missing:
            self._lose(str(missing))
        while True:
            try:
                if not self._synced:
                    yield from self._find_frame()
                while True:
                    yield from self._frame()
            except (_LostError, Missing) as lost:
                self._lose(str(lost))
            except _NotLnetError:
                return

    def _lose(self, why: str) -> None:
        if self._synced:
            self._synced, self._lost, self._large = False, why, None
            if self._expected or self.is_lnet:
                self._tell(Saying("lost", f"lost the thread: {why}", {"reason": why}))

    def _reading(self, what: str, begun: bool = True) -> None:
        self._doing, self._begun = what, begun

    def _begin(self) -> Generator[int | Skip, bytes, bool]:
        """Connection request and HELLO, or one of them; False if nothing more can be read."""
        magic = yield 4
        try:
            byteorder = acceptor.request_byteorder(magic)
        except AcceptorError:
            return (yield from self._hello(magic))
        self._reading("a connection request")
        try:
            version = acceptor.request_version((yield 4), byteorder)
            rest = yield acceptor.request_rest_size(version)
            self._tell(say_request(ConnRequest.from_rest(version, rest, byteorder)))
        except WireError as error:
            self._tell(Saying("bad-request", f"{error}", {"error": str(error)}))
            return False
        self._reading("a HELLO", begun=False)
        return (yield from self._hello((yield 4)))

    def _hello(self, magic: bytes) -> Generator[int | Skip, bytes, bool]:
        try:
            socklnd.hello_byteorder(magic)
        except WireError:
            if self._expected or self.is_lnet:
                self._tell_foreign(magic)
            return False
        self._reading("a HELLO")
        try:
            prefix = magic + (yield 4)
            version = socklnd.hello_version(prefix)
            hello = Hello.unpack(prefix + (yield socklnd.hello_rest_size(version)))
            if hello.ips_size:
                hello = hello.with_ips((yield hello.ips_size))
        except WireError as error:
            self._tell(Saying("bad-hello", f"{error}", {"error": str(error)}))
            return False
        self._tell(say_hello(hello))
        self._version = version
        self._large = version == 4
        self._byteorder = hello.byteorder
        return True

    def _tell_foreign(self, magic: bytes) -> None:
        if magic[:2] == acceptor.TLS_BEGINS:
            self._tell(Saying("secured", "a secured connection (TLS): its contents cannot be read", {}))
        else:
            self._tell(Saying("foreign", f"not LNet: begins with {magic.hex()}", {"magic": magic.hex()}))

    def _find_frame(self) -> Step:
        """Search until a frame shows itself, then leave the stream at its start."""
        kept = b""
        while True:
            data = kept + (yield ANY)
            self._searched += len(data) - len(kept)
            found = find_frame(data, starts_segment=not kept)
            if found:
                break
            kept = data[-SCAN_KEEP:]
            if self._searched > _MAX_SEARCH and not self._expected and not self.is_lnet:
                raise _NotLnetError
        rest = data[found.at :]
        self.reader.push_back(rest)
        skipped = self._searched - len(rest)
        if skipped:
            self._tell(Saying("resumed", f"follows again after {skipped} B", {"skipped": skipped}))
        self._byteorder, self._large, self._version = found.byteorder, found.large, 3
        self._synced, self._searched = True, 0

    def _frame(self) -> Step:
        self._reading("a frame", begun=False)
        cookies = (0, 0)
        if self._version != 1:
            head = yield FRAME_HEADER_SIZE
            try:
                kind, _, cookie0, cookie1 = unpack_frame_header(head, 0, self._byteorder)
            except WireError as error:
                raise _LostError(str(error)) from None
            if kind == FrameType.NOOP:
                self._tell(say_noop(cookie0, cookie1, self._version))
                return
            cookies = (cookie0, cookie1)
            self._reading("an LNet header")
        raw = yield LARGE_HEADER_SIZE if self._large else HEADER_SIZE
        if self._large is None:
            self._large = not is_small_header(raw)
            if self._large:
                raw += yield LARGE_HEADER_SIZE - HEADER_SIZE
        try:
            header = unpack_header(raw, 0, self._large)
        except WireError as error:
            raise _LostError(str(error)) from None
        yield from self._payload(header, cookies)

    def _payload(self, header: Header, cookies: tuple[int, int]) -> Step:
        """Say the message, with what it needs of its payload; pass over the rest."""
        self._reading("a payload")
        left = header.payload_length
        payload = b""
        more: tuple[str, ...] = ()
        push = header.type == MsgType.PUT and (is_ping(header) or kind_of(header) is not None)
        told = (push or header.type == MsgType.REPLY) and left <= _MAX_PING_INFO
        frame, test = is_rpc(header), is_selftest(header)
        try:
            if (told or frame or test) and left >= 4:
                start = yield 4
                left -= 4
                wanted = 0
                if frame and looks_like_rpc(start):
                    wanted = min(left, rpc_prefix(start) - 4)
                elif test and looks_like_selftest(start):
                    wanted = MESSAGE_SIZE - 4
                elif told and (looks_like_ping_info(start) or looks_like_bond(start)):
                    wanted = left
                if wanted:  # 0 would be ANY
                    payload = start + (yield wanted)
                    left -= wanted
        except Missing as missing:
            left -= missing.had + missing.size
            more = ("payload missing from the capture",)
        self._tell(say_message(header, self._requests, payload=payload, cookies=cookies, more=more))
        if left < 0:
            raise _LostError("bytes after a payload are missing from the capture")
        if left:
            yield Skip(left)

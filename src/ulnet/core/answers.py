"""ACKs and REPLYs: they go to the process that asked, from the NI that was asked (spec selection.md §8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ulnet.core.msg import NO_PAYLOAD, Msg
from ulnet.core.selection.paths import Key, PathSet
from ulnet.core.status import LNetError
from ulnet.wire.lnet import Header, MsgType

if TYPE_CHECKING:
    from ulnet.core.event import Event
    from ulnet.core.md import Md
    from ulnet.core.path import Path
    from ulnet.core.paths import PathFinder
    from ulnet.core.peer import PeerNi
    from ulnet.core.sender import Sender
    from ulnet.core.state import NodeState
    from ulnet.nid import Nid

__all__ = ["Answers"]

_ACK: Final = int(MsgType.ACK)
_REPLY: Final = int(MsgType.REPLY)


class Answers:
    """What one node answers to PUTs and GETs."""

    __slots__ = ("_finder", "_sender", "_state")

    def __init__(self, state: NodeState, finder: PathFinder, sender: Sender) -> None:
        self._state = state
        self._finder = finder
        self._sender = sender

    def paths(self, dest: PeerNi, kind: int, source: Nid | None, via: Nid | None, pid: int) -> PathSet:
        """The paths of answers to the process `pid` at `dest`, from the NI that was asked."""
        return self._finder.find(dest, Key(kind, source, True, False, via, pid))

    def acknowledge(self, paths: PathSet, wmds: list[bytes], match_bits: int, mlength: int) -> None:
        """Answer PUTs with these handles, of which so many bytes were taken."""
        template = paths.template
        if template.length != mlength or template.match_bits != match_bits:
            # fmt: off
            template = Header(_ACK, dest_pid=paths.key.pid, src_pid=self._state.pid, match_bits=match_bits,
                              length=mlength)
            # fmt: on
            paths.ask(template)
        path = self._path(paths)
        if path is None:
            for wmd in wmds:
                self._find_another(paths, template, wmd)
            return
        count = len(wmds)
        free = path.free
        msgs = free[-count:]
        del free[-count:]
        while len(msgs) < count:
            msgs.append(path.new_msg(template))
        hdr = path.header(template)
        for msg, wmd in zip(msgs, wmds, strict=True):
            msg.template = template
            msg.hdr = hdr
            msg.wmd = wmd
        self._sender.count(len(msgs))
        self._sender.submit(path, msgs, self._state.clock())

    def reply(
        self, paths: PathSet, wmds: list[bytes], md: Md, payload: list[memoryview], event: Event
    ) -> None:
        """Answer GETs with these handles from md; its owner hears of `event` as each answer has left."""
        length = event.mlength
        template = paths.template
        if template.payload_length != length:
            # fmt: off
            template = Header(_REPLY, dest_pid=paths.key.pid, src_pid=self._state.pid, payload_length=length)
            # fmt: on
            paths.ask(template)
        path = self._path(paths)
        if path is None:
            for wmd in wmds:
                self._find_another(paths, template, wmd, md, payload, event)
            return
        now = self._state.clock()
        msgs = []
        for wmd in wmds:
            msg = path.new_msg(template)
            msg.wmd = wmd
            msg.md = md
            msg.payload = payload
            msg.event = event
            msgs.append(msg)
        self._sender.count(len(msgs))
        self._sender.submit(path, msgs, now)

    def is_valid(self, paths: PathSet) -> bool:
        """Whether what was decided of these paths still holds."""
        return self._finder.is_valid(paths)

    def _path(self, paths: PathSet) -> Path | None:
        """The path of an answer; None if it takes a longer look."""
        if not self._finder.is_valid(paths):
            try:
                self._finder.fill(paths)
            except LNetError:  # the NI that was asked is gone: others answer
                return None
        return None if paths.routed else paths.join(paths.load) or self._finder.pick(paths, paths.load)

    def _find_another(
        self,
        paths: PathSet,
        template: Header,
        wmd: bytes,
        md: Md | None = None,
        payload: list[memoryview] = NO_PAYLOAD,
        event: Event | None = None,
    ) -> None:
        """An answer over a gateway, or from another NI than the one that was asked."""
        msg = Msg(template)
        msg.wmd = wmd
        msg.md = md
        msg.payload = payload
        msg.event = event
        msg.target = paths.dest.nid
        msg.source = paths.key.source
        msg.via = paths.key.via
        self._sender.send(msg)

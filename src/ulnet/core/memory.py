"""The memory that users lend to LNet: MDs, match entries, portals, and their events (spec md-me-eq.md)."""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from ulnet.core.event import Event, EventKind
from ulnet.core.guard.identity import MAX_NUMBER, Guarded, identity
from ulnet.core.md import (
    FOR_TARGETS,
    INFINITE,
    MAX_SIZE,
    Buffer,
    EventHandler,
    Md,
    check_attachable,
    check_bindable,
    fragments_of,
)
from ulnet.core.portal import PORTALS, MatchEntry, Portal
from ulnet.core.responses import Responses
from ulnet.core.state import NodeState
from ulnet.core.status import LNetError
from ulnet.nid import ANY_NID, PID_ANY, Nid
from ulnet.wire.lnet import LNET_MTU

if TYPE_CHECKING:
    from ulnet.core.msg import Msg
    from ulnet.core.parts import Parts

__all__ = ["MatchEntry", "Memory"]

_NOT_SENT = "the message did not leave in time: the peer is silent (host down, firewall, no LNet node there)"
_GONE = "the peer is gone, its connections broke and its host refuses others: the message may have arrived"
_FORSAKEN = "the peer was restarted before it answered: the message may or may not have arrived"
_UNLINKED = "the memory descriptor was unlinked while the operation was under way"
_NOT_ANSWERED = "no response arrived in time: the message left, but LNet there may hang; or allow more time"

# Spec wire-lnet.md §3: the low bits of an object cookie name its type (MD = 1).
_MD_COOKIE_STEP = 4
_MD_COOKIE_TYPE = 1


class Memory(Responses):
    """Portals, match entries and memory descriptors of one node."""

    __slots__ = ("_next_cookie", "_parts", "_prefixes", "_wmd_prefix", "portals")

    def __init__(self, state: NodeState, parts: Parts) -> None:
        super().__init__(state)
        self._parts = parts
        self.portals: list[Portal | None] = [None] * PORTALS
        self._next_cookie = _MD_COOKIE_STEP + _MD_COOKIE_TYPE
        self._wmd_prefix = struct.pack("<Q", state.cookie)
        self._prefixes = 0  # made so far

    # Portals and match entries -------------------------------------------------------------------

    def portal(self, index: int) -> Portal:
        """The portal of that index, made on first use. Raises LNetError(EINVAL)."""
        if not 0 <= index < PORTALS:
            raise LNetError(errno.EINVAL, f"portal {index}: portals are numbered 0..{PORTALS - 1}")
        found = self.portals[index]
        if found is None:
            found = self.portals[index] = Portal(index)
        return found

    def set_lazy(self, index: int, lazy: bool = True) -> None:
        """Whether unmatched PUTs wait for a match entry; clearing it drops those that wait."""
        portal = self.portal(index)
        portal.lazy = lazy
        if not lazy:
            self._drop_all_delayed(portal, "portal is no longer lazy")

    def _drop_all_delayed(self, portal: Portal, why: str) -> None:
        while portal.delayed:  # handlers may take some away meanwhile
            msg = next(iter(portal.delayed))
            portal.let_go(msg)
            self._parts.drop_delayed(msg, why)

    def me_attach(
        self,
        portal: int,
        *,
        match_bits: int,
        ignore_bits: int = 0,
        nid: Nid = ANY_NID,
        pid: int = PID_ANY,
        unlink: bool = True,
        at_head: bool = False,
    ) -> MatchEntry:
        """Attach a match entry. Raises LNetError: EINVAL (portal, bits, pid), EPERM (kind of portal)."""
        self._state.must_run()
        for bits, name in ((match_bits, "match_bits"), (ignore_bits, "ignore_bits")):
            if not 0 <= bits < 1 << 64:
                raise LNetError(errno.EINVAL, f"{name} {bits:#x}: must be an unsigned 64-bit number")
        if not 0 <= pid <= PID_ANY:
            raise LNetError(errno.EINVAL, f"pid {pid}: must be an unsigned 32-bit number")
        table = self.portal(portal)
        me = MatchEntry(table, nid, pid, match_bits, ignore_bits, unlink)
        table.attach(me, at_head)
        return me

    def me_unlink(self, me: MatchEntry) -> None:
        """Take a match entry away, and its MD with it."""
        me.portal.detach(me)
        if me.md is not None:
            self.md_unlink(me.md)

    # Memory descriptors --------------------------------------------------------------------------

    def md_attach(
        self,
        me: MatchEntry,
        start: Buffer | Sequence[Buffer],
        handler: EventHandler | None = None,
        *,
        options: int,
        threshold: int = INFINITE,
        max_size: int = 0,
        user_ptr: object = None,
        auto_unlink: bool = True,
    ) -> Md:
        """Give a match entry its memory; messages that wait on a lazy portal are matched at once.

        On failure the match entry is gone, unless it has another descriptor. Raises LNetError: EINVAL,
        EBUSY (it has one), ENOENT (it is unlinked), ESHUTDOWN.
        """
        if me.md is not None:
            raise LNetError(errno.EBUSY, "the match entry has its memory already: unlink that first")
        try:
            self._state.must_run()
            if not me.linked:
                raise LNetError(errno.ENOENT, "the match entry is unlinked: attach a new one")
            md = Md(
                fragments_of(start),
                handler,
                threshold=threshold,
                options=int(options),
                max_size=max_size,
                user_ptr=user_ptr,
                auto_unlink=auto_unlink,
            )
            check_attachable(md)
        except Exception:
            self.me_unlink(me)
            raise
        md.me = me
        me.md = md
        me.portal.generation.invalidate("an entry has memory, or none any more")
        self.register(md)
        if me.portal.delayed:
            self._parts.match_delayed(me.portal)
        return md

    def md_bind(
        self,
        start: Buffer | Sequence[Buffer],
        handler: EventHandler | None = None,
        *,
        options: int = 0,
        threshold: int = INFINITE,
        user_ptr: object = None,
        auto_unlink: bool = True,
        timeout: float | None = None,
        cpt: int | None = None,
    ) -> Md:
        """A free-floating MD for put and get; `cpt` tells where its memory is, by default near this thread.

        Raises LNetError: EINVAL, ERANGE (cpt), ESHUTDOWN.
        """
        self._state.must_run()
        md = Md(
            fragments_of(start),
            handler,
            threshold=threshold,
            options=int(options),
            user_ptr=user_ptr,
            auto_unlink=auto_unlink,
            timeout=timeout,
        )
        check_bindable(md)
        state = self._state
        md.cpt = state.cpt_of(md.fragments) if cpt is None else state.cpts.checked(cpt)
        self.register(md)
        return md

    def register(self, md: Md) -> None:
        """Give md a handle that no other had, by which it is found from now on."""
        cookie = md.handle = self._next_cookie
        self._next_cookie = cookie + _MD_COOKIE_STEP
        if not md.key:
            md.key = cookie
        self.wmd_of(md)
        md.linked = True
        md.sends = md.me is None
        self.mds[cookie] = md

    def wmd_of(self, md: Md) -> bytes:
        """The handle of md on the wire (spec wire-lnet.md §3)."""
        wmd = md.wmd = self._wmd_prefix + md.handle.to_bytes(8, "little")
        return wmd

    def rebind(self, md: Md, data: Buffer | Sequence[Buffer], threshold: int, timeout: float | None) -> None:
        """Bind a descriptor that is over anew, with other memory. Raises LNetError(EINVAL, ESHUTDOWN)."""
        state = self._state
        if not state.running:
            state.must_run()
        if timeout != md.timeout:
            self.forget_response(md)
            md.set_timeout(timeout)
        if isinstance(data, bytes):
            fragments, md.length = [memoryview(data)], len(data)
        else:
            fragments = fragments_of(data)
            md.length = sum([view.nbytes for view in fragments])
        md.fragments = fragments
        md.threshold = threshold
        md.offset = md.aborted = md.acks_due = md.replies_due = 0
        md.used = False
        if md.length > LNET_MTU or md.options & FOR_TARGETS:
            check_bindable(md)
        md.cpt = state.cpt_of(fragments) if state.divided else 0
        cookie = md.handle = self._next_cookie
        self._next_cookie = cookie + _MD_COOKIE_STEP
        if not md.key:
            md.key = cookie
        md.wmd = b""  # many need none, for they have an identity
        md.linked = md.sends = True
        self.mds[cookie] = md

    def drop(self, md: Md) -> None:
        """A lasting descriptor, which is over, will not be bound anew."""
        self.forget_response(md)
        self.left_hop(md)

    def left_for_good(self, md: Md) -> None:
        """A message of md that wants no answer has left."""
        if md.acks_due or md.replies_due:
            return
        if md.lasting:
            md.deadline_slot = -1
        elif md.wheel_slot >= 0:
            self.forget_response(md)

    def identify(self, msg: Msg, md: Md, peer: Guarded) -> None:
        """Give msg, the only PUT with md's handle, an identity; a plain handle when numbers run out.

        Its prefix nobody but the peer learns: others cannot send in its name what is then dropped.
        """
        md.put = msg
        md.used = True
        number = md.handle // _MD_COOKIE_STEP
        if not peer.prefix:
            self._prefixes += 1
            count = self._prefixes.to_bytes(8, "little")
            peer.prefix = blake2b(count, digest_size=8, key=self._state.secret).digest()
        msg.wmd = identity(peer.prefix, number, peer.guard) if number < MAX_NUMBER else self.wmd_of(md)

    def renew(self, md: Md) -> bool:
        """Give md, which carried a message before, a new handle; False while that one may not be over."""
        if md.refs or md.acks_due or md.replies_due or md.deadline_slot >= 0 or md.me is not None:
            return False
        self.forget_response(md)
        md.forget_keepers()
        del self.mds[md.handle]
        self.register(md)
        md.used = False
        return True

    def release(self, md: Md) -> None:
        """An operation of which the owner does not hear is over."""
        md.refs -= 1
        if not md.refs and md.linked and (md.aborted or (md.auto_unlink and md.exhausted)):
            self.complete(md, self._ending_event(md, md.aborted))

    def find_wmd(self, wmd: bytes) -> Md | None:
        """The bound MD that a wire handle names, if it may still take responses."""
        if wmd[15]:
            number = int.from_bytes(wmd[8:13], "big")
            md = self.mds.get(number * _MD_COOKIE_STEP + _MD_COOKIE_TYPE)
            put = md.put if md is not None else None
            if put is None or (put.wmd != wmd and put.wmd[:15] != wmd[:15]):
                return None
        elif wmd.startswith(self._wmd_prefix):
            md = self.mds.get(int.from_bytes(wmd[8:], "little"))
        else:
            return None
        # `sends`: it is bound, linked and not unlinked by its owner.
        return md if md is not None and md.sends and md.threshold else None

    def md_unlink(self, md: Md, status: int = 0, reason: str = "") -> None:
        """End an MD: at once with an UNLINK event when idle, else with the last event of what is under way.

        `status` (positive errno) marks an answer that will not come, and why: each that is due is told as an
        ACK or REPLY with that status, ahead of UNLINK. A busy MD then gets an UNLINK event with `unlinked`
        False now, so that its owner need not wait for the driver. Unknown MDs are ignored.
        """
        if not md.linked:
            return
        if md.refs:
            if not md.aborted:
                md.aborted = status or errno.ETIMEDOUT
                md.sends = False
                md.forget_keepers()
                self.forget_response(md)
                self._leave_entry(md)
                if status:
                    md.refs += 1  # what handlers do meanwhile does not end it
                    self._tell_unanswered(md, status, reason)
                    md.refs -= 1
                    self.complete(md, self._ending_event(md, status, reason=reason))
            return
        self._remove(md)
        if status:
            self._tell_unanswered(md, status, reason)
        event = self._ending_event(md, status, reason=reason)
        event.unlinked = True
        self.complete(md, event)

    def _tell_unanswered(self, md: Md, status: int, reason: str) -> None:
        """No answer that is due will come."""
        acks, md.acks_due = md.acks_due, 0
        replies, md.replies_due = md.replies_due, 0
        for kind, due in ((EventKind.ACK, acks), (EventKind.REPLY, replies)):
            for _ in range(due):
                self.complete(md, self._ending_event(md, status, kind, reason))

    @staticmethod
    def _ending_event(md: Md, status: int, kind: EventKind = EventKind.UNLINK, reason: str = "") -> Event:
        event = Event(kind, md, None)
        event.status = -status
        if status == errno.ETIMEDOUT:
            event.reason = _NOT_SENT if md.refs else _NOT_ANSWERED
        elif status == errno.ECONNRESET:
            event.reason = _FORSAKEN
        elif status == errno.ECONNREFUSED:
            event.reason = _GONE
        elif status == errno.ENETDOWN and md.ni is not None:
            event.reason = f"the local interface {md.ni.nid} was removed: the message may have arrived"
        event.reason = reason or event.reason
        return event

    def _remove(self, md: Md) -> None:
        md.linked = md.sends = False
        md.put = None
        del self.mds[md.handle]
        if md.keepers is not None:
            md.forget_keepers()
        if md.in_flight:
            for in_flight in md.in_flight:
                in_flight.abandon()
            md.in_flight.clear()
        if md.lasting:
            md.deadline_slot = -1
            return
        self.forget_response(md)
        self.left_hop(md)
        if md.me is not None:
            self._leave_entry(md)

    @staticmethod
    def _leave_entry(md: Md) -> None:
        """Nothing more can match md."""
        me = md.me
        if me is not None:
            md.me = me.md = None
            me.portal.generation.invalidate("an entry has memory, or none any more")
            if me.unlink:
                me.portal.detach(me)

    # Answers that do not come -----------------------------------------------------------------------

    def expire(self, md: Md, slot: int) -> None:
        """The place of md in the deadlines has come: give up on a response that is overdue."""
        if md.wheel_slot == slot:
            md.wheel_slot = -1
            md.until = 0.0
        if md.deadline_slot != slot:  # a handler ended it, or used it anew
            return
        md.deadline_slot = -1
        self._state.stats.response_timeout_count += 1
        self._parts.overdue(md)
        self.md_unlink(md, errno.ETIMEDOUT)

    def forsake(self, nid: Nid, status: int = errno.ECONNRESET) -> None:
        """The node behind nid has begun a new life, or is gone: what had left for it gets no answer."""
        for md in self.at_hop(nid):
            if md.linked and md.next_nid == nid and md.deadline_slot >= 0 and not md.refs:
                self.md_unlink(md, status)

    # Events --------------------------------------------------------------------------------------

    def complete_one(self, md: Md, event: Event) -> None:
        """One operation on md is over: tell its owner, and end the MD if this was its last."""
        md.refs -= 1
        self.complete(md, event)

    def complete(self, md: Md, event: Event) -> None:
        """Tell the owner of md of an operation that is counted already."""
        spent = not md.threshold or (md.options & MAX_SIZE and md.exhausted)
        if not md.refs and md.linked and (md.aborted or (md.auto_unlink and spent)):
            self._remove(md)
            event.unlinked = True
        if md.aborted and not event.status:
            event.status = -md.aborted
            event.reason = _UNLINKED
        self.tell(md, event)

    def tell(self, md: Md, event: Event) -> None:
        """Call the handler of md, if there is one. What it raises ends in the log."""
        handler = md.handler
        if handler is not None:
            try:
                handler(event)
            except BaseException as exc:  # a user's handler must not break the node
                self._state.mistake(exc, "event handler failed on", event)

    def close(self) -> None:
        """Drop what waits and unlink everything; busy MDs end with their last operation."""
        for portal in self.portals:
            if portal is None:
                continue
            self._drop_all_delayed(portal, "the node shuts down")
            for me in portal.entries():
                self.me_unlink(me)
        for md in list(self.mds.values()):
            self.md_unlink(md)

"""The sending half: PUTs, GETs and answers from the request to the driver (spec selection.md §8).

A message is made of a template (its header without NIDs), finds its path, takes its credits there and goes to
the driver; `Completion` tells its owner what became of it. What handlers send while a batch of events is told
to them is corked, and goes to the driver together behind it.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from math import inf, nextafter
from typing import TYPE_CHECKING, Final

from ulnet.core.credits import Credits
from ulnet.core.deadlines import end_of
from ulnet.core.guard.sender import SenderGuard
from ulnet.core.loads import Loads
from ulnet.core.md import NO_TRACK_RESPONSE, TRACK_RESPONSE, Md, check_sink
from ulnet.core.memory import Memory
from ulnet.core.msg import ANSWERS, NO_PAYLOAD, Msg
from ulnet.core.ni import NI
from ulnet.core.path import Path, load_of
from ulnet.core.paths import PathFinder
from ulnet.core.peer import PeerNi, may_be_peer
from ulnet.core.portal import PORTAL_BITS, PORTALS
from ulnet.core.selection.paths import Key, PathSet
from ulnet.core.state import NodeState
from ulnet.core.status import HealthStatus, LNetError
from ulnet.nid import LNET_PID, LO_NID, Nid
from ulnet.wire.lnet import HEADER_SIZE, NO_WMD, PING_PORTAL, Header, MsgType

if TYPE_CHECKING:
    from ulnet.core.faults import FaultInjector
    from ulnet.core.lnd import Master
    from ulnet.core.parts import Parts

__all__ = ["ACK_BIT", "REPLY_BIT", "Sender"]

REPLY_BIT: Final = 1  # in `response_tracking`
ACK_BIT: Final = 2
_PUT: Final = int(MsgType.PUT)
_GET: Final = int(MsgType.GET)
_WIDTHS: Final = {"match_bits": 64, "offset": 32, "hdr_data": 64, "pid": 32}


class Sender:
    """Outgoing messages of one node, until their driver has them."""

    __slots__ = (
        "_by_nid",
        "_clock",
        "_cork",
        "_corked",
        "_corking",
        "_finder",
        "_generation",
        "_memory",
        "_parts",
        "_selector",
        "_since",
        "_state",
        "_stats",
        "credits",
        "guard",
        "loads",
    )

    def __init__(
        self, state: NodeState, memory: Memory, finder: PathFinder, faults: FaultInjector, parts: Parts
    ) -> None:
        self._state = state
        self._generation = state.generation
        self._by_nid = state.peers.by_nid
        self._memory = memory
        self._clock = state.clock
        self._stats = state.stats
        self._finder = finder
        self._selector = finder.selector
        self._parts = parts
        self.credits: Credits = Credits(state, faults, parts)
        self.loads: Loads = Loads(state, parts)
        self.guard: SenderGuard = SenderGuard(state, memory, parts)
        self._corking = 0  # handlers are called, one after the other
        self._corked: Path | None = None  # whose next messages wait for the others …
        self._cork: list[Msg] = []  # … here
        self._since = 0.0  # when that began

    # Requests --------------------------------------------------------------------------------------

    def put(
        self,
        md: Md,
        target: Nid,
        portal: int,
        match_bits: int,
        *,
        ack: bool = True,
        offset: int = 0,
        hdr_data: int = 0,
        source: Nid | None = None,
        pid: int = LNET_PID,
        cpt: int | None = None,
    ) -> None:
        """Send all of md's memory; SEND and (with ack) ACK events follow. `cpt` is md's unless given.

        Raises LNetError: ENOENT (md), EINVAL (numbers), ERANGE (cpt), ESHUTDOWN.
        """
        dest = self._by_nid.get(target)
        paths = dest.put_paths if dest is not None else None
        if (
            paths is None
            or source is not None
            or ack is not paths.ack
            or paths.ready != self._generation.number + paths.generation.number
            or paths.asked
            != (md.cpt if cpt is None else cpt, md.length, match_bits, hdr_data, portal, offset, pid)
        ):
            paths = self._ask_put(md, target, portal, match_bits, ack, offset, hdr_data, source, pid, cpt)
            if paths is None:
                return
        elif not md.sends or not md.threshold:
            self._check_usable(md)
        if md.threshold > 0:
            md.threshold -= 1
        path = paths.fixed or paths.join(paths.load) or self._finder.pick(paths, paths.load)
        template = paths.template
        hdr = path.hdr if path.template is template else path.header(template)
        msg = path.free.pop() if path.free else path.new_msg(template)
        msg.template = template
        msg.hdr = hdr
        msg.md = md
        msg.payload = md.fragments
        md.ni = path.ni
        if ack or md.timeout is not None:
            self._begin(msg, md, path, ACK_BIT if ack else 0)
            return
        msg.wmd = NO_WMD
        md.refs += 1
        if path is self._corked:
            self._cork.append(msg)
        else:
            self._submit_first(path, msg, self._clock())

    def _ask_put(
        self,
        md: Md,
        target: Nid,
        portal: int,
        match_bits: int,
        ack: bool,
        offset: int,
        hdr_data: int,
        source: Nid | None,
        pid: int,
        cpt: int | None,
    ) -> PathSet | None:
        """The paths for PUTs that are not like the last one; None where this one waits for its path."""
        self._check(md, portal, match_bits, offset, hdr_data, pid)
        cpt = md.cpt if cpt is None else self._state.cpts.checked(cpt)
        # fmt: off
        template = Header(_PUT, dest_pid=pid, src_pid=self._state.pid, payload_length=md.length,
                          match_bits=match_bits, hdr_data=hdr_data, portal=portal, offset=offset)
        # fmt: on
        paths = self._prepare(target, template, source, cpt, False, None)
        if paths is not None and paths.ready >= 0:
            paths.ack = ack
            return paths
        if md.threshold > 0:
            md.threshold -= 1
        self._request(md, template, target, source, cpt, ack)
        return None

    def _begin(self, msg: Msg, md: Md, path: Path, answer: int) -> None:
        """msg, a request from md, has its path: it waits in the cork, or goes to its driver.

        `answer` is the bit of what is to come back; 0: nothing.
        """
        corked = path is self._corked
        now = self._since if corked else self._clock()
        if answer:
            if answer == ACK_BIT:
                if md.used and not md.refs and not md.acks_due:
                    self._memory.renew(md)
                md.acks_due += 1
                if md.used or not path.final.peer.guard:
                    msg.wmd = md.wmd or self._memory.wmd_of(md)
                else:
                    self._memory.identify(msg, md, path.final.peer)
            else:
                msg.wmd = md.wmd or self._memory.wmd_of(md)
                md.replies_due += 1
            if md.asked is not path.final:
                md.asks(path.final)
            if md.next_nid is not path.next_nid:
                self._memory.went(md, path.next_nid)
        else:
            msg.wmd = NO_WMD
        if answer or md.timeout is not None:
            md.sent_at = now
            if now >= md.until:
                self._expect(md, path.template, answer, now)
            else:
                md.deadline_slot = md.wheel_slot
        md.refs += 1
        if corked:
            self._cork.append(msg)
        else:
            self._submit_first(path, msg, now)

    def get(
        self,
        md: Md,
        target: Nid,
        portal: int,
        match_bits: int,
        *,
        offset: int = 0,
        source: Nid | None = None,
        pid: int = LNET_PID,
        cpt: int | None = None,
        exact: bool = False,
        via: Nid | None = None,
    ) -> None:
        """Ask for md.length bytes into md; SEND and REPLY events follow. `cpt` is md's unless given.

        `exact`: to that NID of the peer and no other; `via`: with `source`, over that gateway.
        Raises LNetError: ENOENT (md), EINVAL (numbers, read-only memory), ERANGE (cpt), ESHUTDOWN.
        """
        dest = self._by_nid.get(target)
        paths = dest.get_paths if dest is not None else None
        if (
            paths is None
            or source is not None
            or exact
            or via is not None
            or paths.ready != self._generation.number + paths.generation.number
            or paths.asked != (md.cpt if cpt is None else cpt, md.length, match_bits, 0, portal, offset, pid)
        ):
            paths = self._ask_get(md, target, portal, match_bits, offset, source, pid, cpt, exact, via)
            if paths is None:
                return
        elif not md.sends or not md.threshold:
            self._check_usable(md)
        if md.fragments and md.fragments[0].readonly:
            check_sink(md)
        if md.threshold > 0:
            md.threshold -= 1
        path = paths.fixed or paths.join(paths.load) or self._finder.pick(paths, paths.load)
        msg = path.new_msg(paths.template)
        msg.md = md
        md.ni = path.ni
        self._begin(msg, md, path, REPLY_BIT)

    def _ask_get(
        self,
        md: Md,
        target: Nid,
        portal: int,
        match_bits: int,
        offset: int,
        source: Nid | None,
        pid: int,
        cpt: int | None,
        exact: bool,
        via: Nid | None,
    ) -> PathSet | None:
        """The paths of GETs like this one, with its template; None: the message must wait or fails."""
        self._check(md, portal, match_bits, offset, 0, pid)
        check_sink(md)
        cpt = md.cpt if cpt is None else self._state.cpts.checked(cpt)
        # fmt: off
        template = Header(_GET, dest_pid=pid, src_pid=self._state.pid, match_bits=match_bits,
                          portal=portal, offset=offset, length=md.length)
        # fmt: on
        paths = self._prepare(target, template, source, cpt, exact, via)
        if paths is not None and paths.ready >= 0:
            return paths
        if md.threshold > 0:
            md.threshold -= 1
        self._request(md, template, target, source, cpt, True, exact, via)
        return None

    def _submit_first(self, path: Path, msg: Msg, now: float) -> None:
        """msg goes to its driver; what follows it by that path may wait in the cork."""
        stats = self._stats
        allocated = stats.msgs_alloc = stats.msgs_alloc + 1
        if allocated > stats.msgs_max:
            stats.msgs_max = allocated
        self.submit(path, [msg], now)
        if self._corking:
            self._corked = path
            self._since = now

    def _check(self, md: Md, portal: int, match_bits: int, offset: int, hdr_data: int, pid: int) -> None:
        """What is asked for anew. Raises LNetError: EINVAL (numbers), ESHUTDOWN, ENOENT (md)."""
        if portal >> PORTAL_BITS:
            raise LNetError(errno.EINVAL, f"portal {portal}: portals are numbered 0..{PORTALS - 1}")
        if match_bits >> 64 or offset >> 32 or hdr_data >> 64 or pid >> 32:
            raise _too_wide(match_bits=match_bits, offset=offset, hdr_data=hdr_data, pid=pid)
        self._state.must_run()
        self._check_usable(md)

    @staticmethod
    def _check_usable(md: Md) -> None:
        """Raises LNetError(ENOENT) where no more can be sent from that memory."""
        if not md.linked or md.me is not None or md.threshold == 0 or md.aborted:
            raise LNetError(
                errno.ENOENT, "the memory descriptor is unlinked, attached or exhausted: bind a new one"
            )

    def _prepare(
        self, target: Nid, template: Header, source: Nid | None, cpt: int, exact: bool, via: Nid | None
    ) -> PathSet | None:
        """The paths of such requests, filled if they can be; None where target can be no peer."""
        if self._corked is not None:
            self.uncork()
        dest = self._state.peers.learn(target)
        if dest is None:
            return None
        kind = template.type
        ping = template.portal == PING_PORTAL
        key = Key(kind, source, exact, ping, via, template.dest_pid, cpt)
        paths = self._finder.find(dest, key)
        if not self._finder.is_valid(paths):
            with suppress(LNetError):  # the message is told, when it sets out
                self._finder.fill(paths)
        paths.ask(template)
        if source is None and not (exact or ping):
            if kind == _PUT:
                dest.put_paths = paths
            elif via is None:
                dest.get_paths = paths
        return paths

    def _request(
        self,
        md: Md,
        template: Header,
        target: Nid,
        source: Nid | None,
        cpt: int | None,
        answered: bool,
        exact: bool = False,
        via: Nid | None = None,
    ) -> None:
        """A request for which no path is ready: somebody has to be asked first, or will tell why not."""
        kind = template.type
        msg = Msg(template)
        msg.md = md
        msg.target = target
        msg.source = source
        msg.cpt = md.cpt if cpt is None else cpt
        msg.exact = exact
        msg.via = via
        now = self._state.clock()
        md.sent_at = now
        if kind == _PUT:
            msg.payload = md.fragments if template.payload_length else NO_PAYLOAD
        if answered:
            if md.used and not md.refs and not md.acks_due:
                self._memory.renew(md)
            msg.wmd = md.wmd or self._memory.wmd_of(md)
            if kind == _PUT:
                md.acks_due += 1
            else:
                md.replies_due += 1
            self._expect(md, template, ACK_BIT if kind == _PUT else REPLY_BIT, now)
        elif md.timeout is not None:
            self._memory.track_response(md, now)
        md.refs += 1
        self.send(msg)

    def _expect(self, md: Md, template: Header | None, answer: int, now: float) -> None:
        """Notice when that kind of answer to what md sends now does not come in time."""
        options = md.options
        assert template is not None
        asked = options & TRACK_RESPONSE or md.timeout is not None or template.portal == PING_PORTAL
        if not asked and (options & NO_TRACK_RESPONSE or not self._state.settings.response_tracking & answer):
            return
        memory = self._memory
        memory.track_again(md, now)
        md.until = now + end_of(md.wheel_slot) - memory.deadline_of(md, now)

    # Setting out -----------------------------------------------------------------------------------

    def count(self, count: int) -> None:
        """Count messages that were made."""
        stats = self._stats
        allocated = stats.msgs_alloc = stats.msgs_alloc + count
        if allocated > stats.msgs_max:
            stats.msgs_max = allocated

    def send(self, msg: Msg) -> None:
        """Send msg to its target; failures arrive as its completion, later."""
        self.count(1)
        self.launch(msg)

    def launch(self, msg: Msg) -> None:
        """Find a path for msg, now or when its peer is discovered, and hand it over there.

        A message that holds no credits may be launched again: it then sets out as if for the first time.
        """
        if self._corked is not None:
            self.uncork()
        if msg.transit is not None:
            self._parts.relay(msg)
            return
        target = msg.target
        assert target is not None
        dest = self._state.peers.learn(target)
        if dest is None:
            if may_be_peer(target):
                self.fail(msg, errno.ENOMEM, f"too many unknown peers: cannot remember {target}")
            else:
                text = f"{target} cannot be a destination: give the NID of one interface"
                self.fail(msg, errno.EINVAL, text)
            return
        peer = dest.peer
        if not peer.settled and target != LO_NID and self._parts.hold(msg, peer):
            return
        guarded = peer.guard or (msg.attempts is not None and msg.master is None)
        if guarded and not self.guard.identify(msg, peer):
            self.fail(msg, errno.ECONNRESET, "the peer was restarted: its former life may have the message")
            return
        try:
            path = self._choose(msg, dest)
        except LNetError as refusal:
            self.fail(msg, refusal.errno, refusal.text)
            return
        hop = path.peer_ni.peer  # a gateway may have to be discovered first
        asks = path.final is not path.peer_ni and not hop.settled and self._finder.asks_first(path.final)
        if not (asks and self._parts.hold(msg, hop)):
            self._set_out(msg, path)

    def _set_out(self, msg: Msg, path: Path) -> None:
        """A message that did not have its path from the beginning goes by that one."""
        path.take(msg)
        md = msg.md
        if md is not None:
            md.ni = path.ni
            if md.deadline_slot >= 0 or md.acks_due or md.replies_due:
                md.asks(path.final)
                self._memory.went(md, path.next_nid)
        self.submit(path, [msg], self._state.clock())

    def _choose(self, msg: Msg, dest: PeerNi) -> Path:
        """The path of msg. Raises LNetError."""
        finder = self._finder
        paths = finder.of(msg, dest)
        template = msg.template
        if msg.attempts is not None:
            path = finder.pick_again(msg, paths)
            self._parts.switched(msg, path.ni, path.peer_ni)
        else:
            try:
                if not finder.is_valid(paths):
                    finder.fill(paths)
                size = load_of(template)
                path = paths.join(size) or finder.pick(paths, size)
            except LNetError:
                if msg.source is None or template.type not in ANSWERS:
                    raise
                path = finder.pick_again(msg, paths)  # the NI that was asked is gone: others answer
        if path.ni.fatal and not msg.queued_at and template.type not in ANSWERS:
            raise finder.down(paths.dest, paths.key, path.ni, path.peer_ni)
        return path

    def submit(self, path: Path, msgs: list[Msg], now: float) -> None:
        """Messages of one header, asked for at `now`, take their credits of that path."""
        if self._corked is not None:
            self.uncork()
        for msg in msgs:
            msg.queued_at = now
            msg.committed = True
        count = len(msgs)
        if path.counts:
            self.loads.begin(path, msgs, now)
        if not path.hop:
            self._selector.took(path, msgs, count)
            if path.route is not None:
                self._finder.took_route(path, count)
            if path.prefers and path.final.preferred != path.ni.nid:
                path.final.preferred = path.ni.nid
                path.final.peer.generation.invalidate("it knows one of our NIs")
        if path.peer_ni.unhealthy:
            self._parts.posted(path.peer_ni)
        size = sum([HEADER_SIZE + msg.hdr.payload_length for msg in msgs]) if path.hop else path.size * count
        self.credits.take(path, msgs, count, size)

    def cork(self) -> None:
        """Handlers are called next, one after the other: what they send leaves behind them."""
        self._corking += 1

    def uncork_all(self) -> None:
        """The handlers of a batch have been called."""
        self._corking -= 1
        if self._corked is not None:
            self.uncork()

    def uncork(self) -> None:
        """Send what waits in the cork, and count off what was answered."""
        if self.loads.answered is not None:
            self.loads.settle()
        path = self._corked
        msgs = self._cork
        self._corked = None
        if not msgs or path is None:
            return
        self._cork = []
        self.count(len(msgs))
        # Asked for between then and now, evenly: that makes the sum of their times right.
        self.submit(path, msgs, (self._since + self._clock()) / 2)

    def pass_on(self, msg: Msg, master: Master, ni: NI, nid: Nid) -> bool:
        """A driver without a wire of its own, which has msg, gives it to another NI to send to nid.

        False, and nothing is done, when nid cannot be the NID of a peer.
        """
        pni = self._state.peers.learn(nid)
        if pni is None:
            return False
        self.credits.give_back_of(msg)
        self.loads.end(msg)
        msg.master = master
        self.send_on(msg, ni, pni, msg.template.dest_pid)
        return True

    def send_on(self, msg: Msg, ni: NI, pni: PeerNi, pid: int) -> None:
        """Send msg, whose header is another's, from ni to its next hop."""
        path = self._finder.hop(msg.hdr.type, ni, pni, pid)
        path.take(msg)
        now = self._state.clock()
        if msg.transit is None:
            hdr = msg.hdr
            self.loads.on_hop(ni, pni, msg, HEADER_SIZE + (hdr.payload_length or hdr.length), now)
        if msg.md is not None:
            self._memory.went(msg.md, pni.nid)
        self.submit(path, [msg], now)

    # Turning back ----------------------------------------------------------------------------------

    def relaunch(self, msg: Msg) -> None:
        """Launch a message that came back, or end it if nobody wants it."""
        if not self._state.running:
            self.fail(msg, errno.ESHUTDOWN, "the node is shutting down")
        elif msg.md is not None and msg.md.aborted:
            self.fail(msg, errno.ECANCELED, "the memory descriptor was unlinked before the message left")
        elif self.guard.is_answered(msg):
            self._state.defer(self._parts.end, msg, HealthStatus.OK, 0, "")
        else:
            self.launch(msg)

    def set_out_anew(self, msg: Msg) -> None:
        """msg, which holds no credits any more, has not left its path: it takes another one."""
        ni, pni, since = msg.ni, msg.peer_ni, msg.queued_at
        self.loads.end(msg)
        msg.path = msg.ni = msg.peer_ni = None
        if ni is not None and msg.source == ni.nid and not ni.active and msg.template.type not in ANSWERS:
            self.fail(msg, errno.ENETDOWN, f"the local interface {ni.nid} was removed")
            return
        self.relaunch(msg)
        if msg.committed:  # it waits since then; not the very same time, which tells the guard of another
            msg.queued_at = nextafter(since, inf)
        if ni is not None and pni is not None:
            self._parts.moved(msg, ni, pni)

    def take_back(self, msg: Msg) -> None:
        """A driver gives msg back without having sent any of it: it sets out anew, and nobody is to blame."""
        self.credits.give_back_of(msg)
        msg.path = None
        self._state.defer(self.set_out_anew, msg)

    def fail(self, msg: Msg, err: int, reason: str) -> None:
        """End msg with that errno, soon: never in its caller's stack. Nobody's health suffers."""
        status = HealthStatus.REMOTE_ERROR if err == errno.EHOSTUNREACH else HealthStatus.LOCAL_ERROR
        self._state.defer(self._parts.end, msg, status, err, reason)


def _too_wide(**numbers: int) -> LNetError:
    name = next(name for name, number in numbers.items() if number >> _WIDTHS[name])
    return LNetError(errno.EINVAL, f"{name} {numbers[name]}: must be an unsigned {_WIDTHS[name]}-bit number")

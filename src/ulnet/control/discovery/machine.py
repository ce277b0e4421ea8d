"""Discovery of one node: what begins it, what it does, and those who wait (spec discovery.md §3, §4).

Events only note what happened and queue the peer. All turns are taken from a deferred call, so that nothing
here runs inside a driver's stack or inside a sender's.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final

from ulnet.control.discovery.ageing import Ageing
from ulnet.control.discovery.answers import SAYS_MULTI_RAIL, Answers, size_needed
from ulnet.control.discovery.asking import Asking
from ulnet.control.discovery.claims import Claims, nids_told
from ulnet.control.discovery.exchange import PING, PUSH, WHO, Exchanges, error_of, push_path
from ulnet.control.discovery.merging import Merging
from ulnet.control.discovery.table import STATE_MASK, STEPS, Action, Input, decide
from ulnet.control.discovery.waiting import Waiting
from ulnet.control.self_info import SelfInfo
from ulnet.core.event import Event, EventKind
from ulnet.core.lines import Line
from ulnet.core.memory import Memory
from ulnet.core.msg import Msg
from ulnet.core.ni import NI, LocalNet
from ulnet.core.notices import Notices
from ulnet.core.peer import Exchange, Peer, PeerFlag, PeerNi, Waiter
from ulnet.core.routing.gateways import Gateways
from ulnet.core.sender import Sender
from ulnet.core.state import NodeState
from ulnet.core.status import LNetError
from ulnet.nid import LO_NID, Net, NetType, Nid
from ulnet.wire.errors import WireError
from ulnet.wire.lnet import PING_PORTAL, MsgType
from ulnet.wire.ping import PingInfo

__all__ = ["Discovery"]

_ANSWERS = (int(MsgType.ACK), int(MsgType.REPLY))
_MAX_PINGS: Final = 8  # of one round: info that never fits or never makes sense is not asked for ever
_AT_ONCE: Final = 64  # peers that have their turns before others of the node's tasks go on
_MOST_SECURED: Final = 4  # at a time, with nodes of NIDs that need certificates and were listed without
_MOST_ASKED: Final = 64  # exchanges of a peer at a time: twice as many as its pushes may begin for long

_MULTI_RAIL = int(PeerFlag.MULTI_RAIL)
_NO_DISCOVERY = int(PeerFlag.NO_DISCOVERY)
_DISCOVERED = int(PeerFlag.DISCOVERED)
_REDISCOVER = int(PeerFlag.REDISCOVER)
_DISCOVERING = int(PeerFlag.DISCOVERING)
_DATA_PRESENT = int(PeerFlag.DATA_PRESENT)
_UPTODATE = int(PeerFlag.NIDS_UPTODATE)
_PING_FAILED = int(PeerFlag.PING_FAILED)
_PUSH_FAILED = int(PeerFlag.PUSH_FAILED)
_PUSH_SENT = int(PeerFlag.PUSH_SENT)
_FORCE_PING = int(PeerFlag.FORCE_PING)
_FORCE_PUSH = int(PeerFlag.FORCE_PUSH)
_MARKED = int(PeerFlag.MARK_DELETION | PeerFlag.MARK_DELETED)
_FAILED = _PING_FAILED | _PUSH_FAILED
_LAST = frozenset({Input.DELETE, Input.GIVE_UP, Input.PING, Input.PUSH, Input.WAIT, Input.DONE})  # of a turn
_GATEWAY_KNOWN = int(PeerFlag.RTR_DISCOVERY | PeerFlag.DISCOVERED)


class Discovery:
    """Finds out who peers are and tells them who we are; messages to unknown peers wait here meanwhile."""

    def __init__(
        self,
        state: NodeState,
        memory: Memory,
        sender: Sender,
        info: SelfInfo,
        gateways: Gateways,
        peer_told: Callable[[PeerNi, bool], None],
    ) -> None:
        self._state = state
        self._queue: dict[Peer, None] = {}
        self._scheduled = False
        self.active: bool = False
        self.unexpected: int = 0  # inputs that the table does not have
        self._gateways = gateways
        self._info = info
        self._exchanges = Exchanges(memory, sender)
        self.path_lost: Callable[[NI, Nid], None] = self._exchanges.lost
        say = Notices(state.clock, state.report).say
        self._say = say
        self._claims = Claims(
            state.peers,
            state.nets,
            gateways.is_gateway,
            gateways.table.to,
            gateways.usable,
            gateways.leads_over,
        )
        self._waiting = Waiting(state, sender, self._want, self._holds)
        self._asking = Asking(state, gateways.needed_for, self._claims.suspect, self._want)
        # fmt: off
        self.merging: Merging = Merging(
            state.peers, self._claims, state.settings, state.report, say, peer_told, gateways.told,
            self._asking, self._ask_who, self._discover_secured, self._waiting.move,
        )
        # fmt: on
        self._secured_asked = 0  # under way
        self._answers = Answers(self._mode, say)
        self.ageing: Ageing = Ageing(state)
        self._actions: dict[Action, Callable[[Peer], None]] = {  # that do something themselves
            action: getattr(self, f"_{action.name.lower()}")
            for action in Action
            if action
            not in (Action.TAKE_REPLY, Action.NOTE_PING, Action.TAKE_PUSH, Action.TAKE_ACK, Action.NOTE_PUSH)
        }

    def _mode(self) -> int:
        return self._state.settings.discovery

    def start(self) -> None:
        """From now on messages to peers that are not known wait for them."""
        self.active = True

    def stop(self) -> None:
        """End all discoveries: who waits is told, what is under way is taken back."""
        self.active = False
        self.ageing.close()
        self._queue.clear()
        for peer in self._state.peers:
            self._end(peer, errno.ESHUTDOWN, "the node is shutting down")
            self._exchanges.end_all(peer)

    # Triggers --------------------------------------------------------------------------------------

    def discover(
        self, nid: Nid, *, force: bool = False, done: Callable[[LNetError | None, Peer | None], None]
    ) -> None:
        """Find out anew who has nid, and tell it our NIDs if it wants them; `force`: in any case.

        `done` hears once, later, of the error or the peer. Raises LNetError: EINVAL, ENOMEM, ESHUTDOWN.
        """
        self._state.must_run()
        if nid.net.type == NetType.BOND:
            raise LNetError(errno.EINVAL, f"{nid} is not discovered but resolved: discover one of its slaves")
        waiter = Waiter(nid, done, self._state.mistake)
        peer = self._waiting.peer_of(nid)
        if nid != LO_NID:
            if force:
                self._doubt(peer)
                self._ask_who(peer.members[nid], f"{WHO} {nid}")
            peer.attempts = 0  # who is asked for again and again is no liar
            peer.mark(_FORCE_PING | _FORCE_PUSH if force else 0, _UPTODATE)
        self._waiting.wait(waiter, peer)

    def _doubt(self, peer: Peer) -> None:
        """Somebody forces a discovery: if that changes no NIDs, what is held to be true may be wrong."""
        name = peer.primary_nid
        if peer.configured:
            text = f"discovery of peer {name} is forced: its NIDs are configured and stay; check them"
        elif not self._mode():
            text = (
                f"discovery of peer {name} is forced while discovery is off: its NIDs stay, right or wrong; "
                "switch it on with 'lnetctl set discovery 1'"
            )
        else:
            return
        self._say(("forced", name), Line("discovery.forced", text, peer=name))

    def told(self, nid: Nid, info: PingInfo, source: Nid, sender: Nid) -> None:
        """A user's ping was answered by `source`, over that next hop: news, as if discovery had asked."""
        peer = self._state.peers.find(nid)
        if peer is None or source not in peer.members or not self.active or nid == LO_NID or not self._mode():
            return
        if self._claims.is_answer(peer, source, sender, info):
            self._learn(peer, info)
        else:
            self._asking.ask(peer)

    def _learn(self, peer: Peer, info: PingInfo) -> None:
        if peer.flags & _DISCOVERED and not peer.flags & _DISCOVERING:
            self._answers.take_reply(peer, info)
            self._feed(peer, Input.PUSHED)

    def net_changed(self, net: LocalNet) -> None:
        """A net is there since now, or its tunables changed."""
        self._claims.net_changed(net)
        self.net_reached(net.net)

    def net_reached(self, net: Net) -> None:
        """A net of this node, or a route, leads to a net: who is behind its NIDs can be asked."""
        self._claims.reached([net], None, self._ask_alone)

    def gateway_lives(self, gateway: Peer) -> None:
        """A gateway has answered its check."""
        self._claims.reached(self._claims.nets_behind(gateway), gateway, self._ask_alone)

    def tell_peers(self) -> None:
        """Our NIs changed: peers that know of our rails hear of it. Others will, when they are discovered."""
        if self.active:
            for peer in self._state.peers:
                if peer.flags & _DISCOVERED and self.push_due(peer):
                    self._feed(peer, Input.WANTED)

    def mode_changed(self, before: int) -> None:
        """The setting `discovery` has another value, and our info tells so already."""
        for peer in self._state.peers:
            if peer.primary_nid == LO_NID:
                continue
            if before and not self._mode():
                if peer.multi_rail:  # it hears of it; if it was discovered, it is one NID after that
                    peer.mark(_FORCE_PUSH | _NO_DISCOVERY)
                    self._feed(peer, Input.WANTED)
            else:
                peer.mark(remove=_UPTODATE)

    def push_anyway(self, peer: Peer) -> None:
        """Tell a peer our info even if it has the one of that number, as routers do."""
        if self.active:
            peer.mark(_FORCE_PUSH)
            self._feed(peer, Input.WANTED)

    def peer_restarted(self, nid: Nid) -> None:
        """Another life of a node, or another node, answers behind nid: look who before more is sent."""
        pni = self._state.peers.find_ni(nid)
        if pni is not None and self.active and pni.peer.primary_nid != LO_NID:
            peer = pni.peer
            peer.pushed_sequence = 0
            peer.mark(remove=_UPTODATE)
            self._claims.suspect(pni)

    def certified(self, pni: PeerNi, vouches: Callable[[Nid], bool] | None) -> None:
        """A NID shows another certificate than before, or none: it may be for NIDs that were refused."""
        peer = pni.peer
        if self._claims.certified(pni, vouches):
            self.peer_deprived(pni.peer)
        if pni.peer is not peer:
            self._state.defer(self._waiting.move, peer, (pni.peer,))

    def push_due(self, peer: Peer) -> bool:
        """Whether the peer should be told our NIDs (spec discovery.md §3)."""
        flags = peer.flags
        if not flags & _MULTI_RAIL or flags & (_MARKED | _PUSH_SENT):
            return False
        if flags & _FORCE_PUSH:
            return True
        return not flags & _NO_DISCOVERY and self._mode() != 0 and peer.pushed_sequence < self._info.sequence

    def hold(self, msg: Msg, peer: Peer) -> bool:
        """Keep a message back until the peer is known, and launch it then; False if it may go now."""
        hdr = msg.hdr
        if not self.active or hdr.portal == PING_PORTAL or hdr.type in _ANSWERS:
            return False
        if peer.primary_nid.net.type == NetType.BOND:
            peer.mark(_DISCOVERED | _UPTODATE)  # bonding NIs find each other by themselves
            return False
        if self._waiting.served is peer or not (peer.going or self._holds(peer)):
            return False
        peer.parked.append(msg)
        if not (peer.going or peer.flags & _DISCOVERING):
            self._feed(peer, Input.WANTED)
        return True

    def _holds(self, peer: Peer) -> bool:
        """Whether messages wait until the peer is known; the check of a gateway holds nothing back."""
        known = peer.settled or peer.primary_nid == LO_NID
        return self.active and not known and peer.flags & _GATEWAY_KNOWN != _GATEWAY_KNOWN

    def peer_deprived(self, peer: Peer) -> None:
        """Configuration took NIDs of the peer away."""
        if self.active and peer.flags & _DISCOVERED:
            peer.mark(remove=_UPTODATE)
            self._feed(peer, Input.WANTED)

    def peer_removed(self, peer: Peer) -> None:
        """The peer left the table: who waits for it goes on with whoever has its NIDs now."""
        self._queue.pop(peer, None)
        self.ageing.left(peer)
        self._claims.left(peer)
        for nid in [Nid.parse(kind.split()[1]) for kind in peer.exchanges if kind.startswith(f"{WHO} ")]:
            self._state.defer(self._claims.ask_next, nid, self._ask_alone, True)
        self._exchanges.end_all(peer)
        peer.news = peer.merging = None
        peer.mark(remove=STATE_MASK | _DATA_PRESENT | _UPTODATE)
        if peer.parked or peer.waiters:
            self._state.defer(self._waiting.move_on, peer)

    # Turns -----------------------------------------------------------------------------------------

    def queued(self, peer: Peer) -> bool:
        """Whether the peer waits for its turn."""
        return peer in self._queue

    def _feed(self, peer: Peer, what: Input) -> bool:
        """One input of the state machine; whether the table has it."""
        found = STEPS[peer.flags & STATE_MASK].get(what)
        if found is None:
            self.unexpected += 1
            where = f"discovery of {peer.primary_nid}, state {peer.flags:#x}"
            text = f"{where}: {what.name} ignored"
            self._state.report(Line("discovery.ignored", text, peer=peer.primary_nid))
            return False
        action, after = found
        peer.mark(after, STATE_MASK & ~after)
        call = self._actions.get(action)
        if call is not None:
            call(peer)
        else:
            self._enqueue(peer)
        return True

    def _enqueue(self, peer: Peer) -> None:
        self._queue[peer] = None
        self._go_on()

    def _go_on(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._state.defer(self._work)

    def _work(self) -> None:
        """Turns of so many that are queued, up to the first one with a part of a long list."""
        self._scheduled = False
        queue = self._queue
        try:
            for peer in list(islice(queue, _AT_ONCE)):
                queue.pop(peer, None)
                begun = peer.merging
                if self.active:
                    self._turn(peer)
                if peer.merging is not begun:
                    break  # connections, too, wait for the end of this call
        finally:  # a mistake in the turn of one is not the end of the others'
            if queue:
                self._go_on()

    def _turn(self, peer: Peer) -> None:
        """Do for the peer what can be done now; it may have been queued again, and be done."""
        while peer.flags & _DISCOVERING and not peer.gone:
            what = decide(peer.flags, self.push_due(peer), peer.error is not None)
            if not self._feed(peer, what) or what in _LAST:
                return
            if what is Input.MERGE and peer.merging is not None:
                self._enqueue(peer)  # there is more of it than one turn takes
                return

    # Actions ---------------------------------------------------------------------------------------

    def _nothing(self, peer: Peer) -> None:
        pass

    def _want(self, peer: Peer) -> None:
        if self.active:
            self._feed(peer, Input.WANTED)

    def _ask_who(self, pni: PeerNi, kind: str = WHO) -> bool:
        """A NID that only a list gave to its peer is asked itself, and nothing waits for that: whether it is.

        One is asked at a time for what others say, and any for what came in its name, or users want.
        """
        peer = pni.peer
        if pni.listed and self.active and kind not in peer.exchanges and len(peer.exchanges) < _MOST_ASKED:
            try:
                self._exchanges.ask_who(peer, kind, pni.nid, partial(self._said_who, pni.nid))
            except LNetError:
                pass  # no way leads there, and the list is all that is known
        return kind in peer.exchanges

    def _ask_alone(self, pni: PeerNi) -> bool | None:
        """Ask a NID whatever others are asked: whether it is. None: it was already, or too many are."""
        kind, exchanges = f"{WHO} {pni.nid}", pni.peer.exchanges
        return None if kind in exchanges or len(exchanges) >= _MOST_ASKED else self._ask_who(pni, kind)

    def _said_who(self, nid: Nid, exchange: Exchange, event: Event) -> None:
        self._state.defer(self._claims.ask_next, nid, self._ask_alone)
        peer = exchange.peer
        info = None
        if event.kind is EventKind.REPLY and not event.status:
            try:
                info = PingInfo.unpack(event.data)
            except WireError:
                pass
        self._exchanges.end(peer, exchange.kind)
        by = peer.members.get(event.source)
        if by is not None and info is not None and not info.truncated:
            if self._claims.is_answer(peer, by.nid, event.sender, info):
                if not by.listed and self.active and self._mode():
                    self._learn(peer, info)
                return
        elif exchange.kind == WHO:
            return
        self._asking.ask(peer)

    def _discover_secured(self, nid: Nid) -> None:
        """A list has a NID that only a certificate can give: its node may show one there, as its own peer."""
        if self._secured_asked < _MOST_SECURED:
            self._secured_asked += 1
            self._state.defer(self._discover_now, nid)

    def _discover_now(self, nid: Nid) -> None:
        try:
            self.discover(nid, done=self._secured_ended)
        except LNetError as refused:
            self._secured_ended(refused, None)

    def _secured_ended(self, error: LNetError | None, peer: Peer | None) -> None:
        self._secured_asked -= 1

    def _delete(self, peer: Peer) -> None:
        self._state.peers.recreate(peer)

    def _merge(self, peer: Peer) -> None:
        owner = self.merging.merge(peer)
        if owner is not peer:
            self._feed(owner, Input.WANTED)

    def _force_ping(self, peer: Peer) -> None:
        self._exchanges.end(peer, PING)
        peer.mark(_FORCE_PING, _PING_FAILED)

    def _send_ping(self, peer: Peer) -> None:
        peer.attempts += 1
        peer.mark(remove=_FORCE_PING)
        peer.error = None
        try:
            if peer.attempts > _MAX_PINGS:
                raise LNetError(
                    errno.EPROTO,
                    f"{peer.primary_nid} answers pings with what is no whole ping info: see what runs there",
                )
            self._claims.ended(peer)
            if not self._asking.may(peer):
                raise LNetError(
                    errno.EAGAIN,
                    "its list is long, and such lists took their time: it is asked when a message waits",
                )
            question = None if peer.check_nid is not None else self._claims.asks(peer)
            if self._claims.asks_suspect(peer):
                peer.attempts -= 1  # others' lists may have brought it: no message fails for its silence
            self._exchanges.ping(peer, question, self._answered)
        except LNetError as refused:
            peer.error = (refused.errno, refused.text)
            self._ping_lost(peer)

    def _send_push(self, peer: Peer) -> None:
        peer.mark(remove=_FORCE_PUSH)
        peer.error = None
        info, path = self._info, push_path(self._state.nis, peer)
        try:
            self._exchanges.push(peer, info.data, info.sequence, path, self._answered)
        except LNetError as refused:
            peer.error = (refused.errno, refused.text)
            self._push_lost(peer)

    def _forget_push(self, peer: Peer) -> None:
        peer.mark(remove=_FORCE_PUSH)

    def _give_up(self, peer: Peer) -> None:
        number, why = peer.error or (errno.EIO, "no reason is known")
        self._end(peer, number, why)

    def _complete(self, peer: Peer) -> None:
        peer.attempts = 0
        peer.error = None
        peer.mark(_DISCOVERED, _REDISCOVER)
        self._gateways.discovered(peer, False)
        self._waiting.known(peer, self.merging.awaited(peer) if peer.waiters else None)
        if peer.stale:
            peer.stale = False
            peer.mark(remove=_UPTODATE)

    def _end(self, peer: Peer, number: int, why: str) -> None:
        """Discovery of the peer failed: so do those who wait for it, and the next message tries again."""
        if peer.flags & (_FORCE_PUSH | _PUSH_FAILED):
            peer.pushed_sequence = 0  # what was not heard may have the number of what was
        peer.attempts = 0
        peer.news = peer.merging = None
        self._claims.ended(peer)
        peer.mark(_REDISCOVER, STATE_MASK | _FAILED | _DATA_PRESENT | _FORCE_PING | _FORCE_PUSH)
        self._exchanges.end(peer, PING)
        self._exchanges.end(peer, PUSH)
        self._gateways.discovered(peer, True)
        self._waiting.fail(peer, number, why)

    # Events ----------------------------------------------------------------------------------------

    def _answered(self, exchange: Exchange, event: Event) -> None:
        """The ping or push of a peer is over, one way or the other."""
        peer = exchange.peer
        if exchange.kind == PING:
            if event.kind is EventKind.REPLY and not event.status:
                self._take_reply(peer, event)
            else:
                peer.error = error_of(event, peer.attempts)
                self._ping_lost(peer)
        elif event.kind is EventKind.ACK and not event.status:
            peer.pushed_sequence = exchange.sequence
            self._exchanges.end(peer, PUSH)
            self._feed(peer, Input.ACK)
        else:
            peer.error = error_of(event, peer.attempts + 1)
            self._push_lost(peer)

    def _take_reply(self, peer: Peer, event: Event) -> None:
        data = event.data
        peer.heard_at, peer.heard_from = event.target, event.source
        info = None
        try:
            info = PingInfo.unpack(data)
            peer.allowance.info_size = max(peer.allowance.info_size, size_needed(data))
        except WireError:
            pass
        self._exchanges.end(peer, PING)
        self._waiting.move(peer, self._claims.answered(peer, event.source))
        source, sender = event.source, event.sender
        if info is None or info.truncated or not self._claims.is_answer(peer, source, sender, info):
            peer.mark(_PING_FAILED)
            self._feed(peer, Input.BAD_REPLY)
            return
        self._answers.take_reply(peer, info)
        if peer.check_nid is None and self._claims.has_suspects(peer):
            peer.mark(_FORCE_PING)
        self._feed(peer, Input.REPLY)

    def _ping_lost(self, peer: Peer) -> None:
        if peer.error is None:  # with its connection: it may break each time
            peer.attempts += self._claims.asks_suspect(peer)
        others = self._claims.silent(peer) if peer.error is not None else None
        if others is not None:
            peer.error = None
            self._waiting.move(peer, others)
        self._exchanges.end(peer, PING)
        peer.mark(_PING_FAILED)
        self._feed(peer, Input.PING_LOST)

    def _push_lost(self, peer: Peer) -> None:
        self._exchanges.end(peer, PUSH)
        peer.attempts += peer.error is None
        peer.mark(_PUSH_FAILED if peer.error else _FORCE_PUSH)  # lost: again, whatever it knows
        self._feed(peer, Input.PUSH_LOST)

    def pushed(self, source: Nid, info: PingInfo | None, sender: Nid | None = None) -> None:
        """A push arrived, of the next hop `sender` (None: its source).

        It has no info where that was not whole, made no sense, or may be invented.
        """
        pni = self._state.peers.find_ni(source)
        if pni is None or not self.active or source == LO_NID:
            return
        peer, told = pni.peer, nids_told(info)
        if info is not None and not info.features & SAYS_MULTI_RAIL:
            self._state.stats.drops["push of a peer without Multi-Rail"] += 1
            return
        sender = sender or source
        own, direct = self._claims.is_own(pni, sender), sender == source
        # Routers pass on what others say in the name of a node.
        is_its = (info is None or self._claims.is_of(pni, told)) if direct else not (own and pni.listed)
        if info is None or not is_its or source not in told:
            who = own and (info is None or is_its or not direct) and self._ask_who(pni, f"{WHO} {source}")
            if direct or not who:
                self._asking.ask(peer)
            return
        self._answers.take_push(peer, info)
        self._feed(peer, Input.PUSHED)

    def push_refused(self, peer: Peer) -> None:
        """A push was not taken: its peer is asked before the next message to it, if it is known at all."""
        if self.active and peer.flags & (_UPTODATE | _DISCOVERING):
            self._asking.must(peer)

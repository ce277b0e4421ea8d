"""The state machine of discovery as data (spec discovery.md §4, §5).

What a peer waits for is its state, and the bits of it are those of the state word. `RULES` tell what the
turn of a queued peer is about (first match wins); what happens then, and at every event, is in
`TRANSITIONS`. docs/design/discovery.md shows both, drawn from here.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final, NamedTuple

from ulnet.core.peer import PeerFlag

__all__ = ["RULES", "STATE_MASK", "STEPS", "TRANSITIONS", "Action", "Input", "Rule", "State", "decide"]

_F = PeerFlag


class State(IntEnum):
    """What discovery of a peer waits for; in brackets the states of the documents."""

    IDLE = 0  # nothing (S1 INIT, S2 ACTIVE)
    WORKING = int(_F.DISCOVERING)  # its turn (S3 DISCOVER, S5 DATA RECEIVED)
    PINGING = int(_F.DISCOVERING | _F.PING_SENT)  # the REPLY (S4 PING SENT)
    PUSHING = int(_F.DISCOVERING | _F.PUSH_SENT)  # the ACK (S6 PUSH SENT)
    BOTH = int(_F.DISCOVERING | _F.PING_SENT | _F.PUSH_SENT)  # REPLY and ACK


STATE_MASK: Final = int(State.BOTH)


class Input(Enum):
    """What can happen to a peer: the first seven from outside, the others in its turn."""

    WANTED = "somebody wants it discovered"
    REPLY = "ping REPLY with its info"
    BAD_REPLY = "ping REPLY without usable info"
    PING_LOST = "ping failed or timed out"
    PUSHED = "it pushed its info"
    ACK = "push ACK"
    PUSH_LOST = "push failed or timed out"

    DELETE = "it is to be made anew"
    MERGE = "info is at hand"
    GIVE_UP = "ping or push failed"
    AGAIN = "the ping told nothing"
    PING = "its NIDs are not known"
    PUSH = "it does not know ours"
    NO_PUSH = "a push is forced on a peer without Multi-Rail"
    WAIT = "an answer is due"
    DONE = "nothing is left to do"

    __hash__ = object.__hash__  # by identity: that of enums is Python, and asked for all the time


class Action(Enum):
    """What is done; each is a method of `Discovery`."""

    NOTHING = "–"
    ENQUEUE = "queue it"
    TAKE_REPLY = "keep the info, queue it"
    NOTE_PING = "note the failed ping, queue"
    TAKE_PUSH = "keep its info, queue"
    TAKE_ACK = "it knows us, queue"
    NOTE_PUSH = "note the failed push, queue"
    DELETE = "delete it; messages find a new peer"
    MERGE = "merge"
    GIVE_UP = "end with the error"
    FORCE_PING = "ping once more"
    SEND_PING = "send a ping"
    SEND_PUSH = "send a push"
    FORGET_PUSH = "forget it"
    COMPLETE = "discovered: messages go"

    __hash__ = object.__hash__


class Rule(NamedTuple):
    """A turn is about `input` where all flags of `every` are set, one of `some` (if any), none of `no`."""

    input: Input
    every: int = 0
    some: int = 0
    no: int = 0
    push_due: bool = False  # only where a push is needed (Discovery.push_due)
    error: bool | None = None  # only where the last exchange left an error, or none


RULES: Final = (
    Rule(Input.DELETE, some=_F.MARK_DELETION | _F.MARK_DELETED),
    Rule(Input.MERGE, every=_F.DATA_PRESENT),
    Rule(Input.GIVE_UP, every=_F.PING_FAILED, error=True),
    Rule(Input.AGAIN, every=_F.PING_FAILED, error=False),
    Rule(Input.GIVE_UP, every=_F.PUSH_FAILED),
    Rule(Input.PING, every=_F.FORCE_PING, no=_F.PING_SENT),
    Rule(Input.PING, no=_F.NIDS_UPTODATE | _F.PING_SENT),
    Rule(Input.PUSH, every=_F.NIDS_UPTODATE, push_due=True),
    Rule(Input.NO_PUSH, every=_F.FORCE_PUSH, no=_F.MULTI_RAIL),
    Rule(Input.WAIT, some=_F.PING_SENT | _F.PUSH_SENT),
    Rule(Input.DELETE, every=_F.MULTI_RAIL | _F.NO_DISCOVERY, no=_F.CONFIGURED),
    Rule(Input.DONE),
)


_RULES: Final = tuple(
    (int(rule.every), int(rule.some), int(rule.no), rule.push_due, rule.error, rule.input) for rule in RULES
)


def decide(flags: int, push_due: bool, error: bool) -> Input:
    """What the turn of a peer with these flags is about."""
    for every, some, no, if_due, if_error, what in _RULES:
        if (
            flags & every == every
            and (not some or flags & some)
            and not flags & no
            and (push_due or not if_due)
            and (if_error is None or if_error == error)
        ):
            return what
    raise AssertionError("the last rule has no condition")


def _transitions() -> dict[tuple[State, Input], tuple[Action, State]]:
    idle, working, pinging, pushing, both = State
    busy = (working, pinging, pushing, both)
    table: dict[tuple[State, Input], tuple[Action, State]] = {
        (idle, Input.WANTED): (Action.ENQUEUE, working),
        (idle, Input.PUSHED): (Action.TAKE_PUSH, working),
        (pinging, Input.REPLY): (Action.TAKE_REPLY, working),
        (both, Input.REPLY): (Action.TAKE_REPLY, pushing),
        (pinging, Input.BAD_REPLY): (Action.NOTE_PING, working),
        (both, Input.BAD_REPLY): (Action.NOTE_PING, pushing),
        (pinging, Input.PING_LOST): (Action.NOTE_PING, working),
        (both, Input.PING_LOST): (Action.NOTE_PING, pushing),
        (pushing, Input.ACK): (Action.TAKE_ACK, working),
        (both, Input.ACK): (Action.TAKE_ACK, pinging),
        (pushing, Input.PUSH_LOST): (Action.NOTE_PUSH, working),
        (both, Input.PUSH_LOST): (Action.NOTE_PUSH, pinging),
        (working, Input.AGAIN): (Action.FORCE_PING, working),
        (pushing, Input.AGAIN): (Action.FORCE_PING, pushing),
        (working, Input.PING): (Action.SEND_PING, pinging),
        (pushing, Input.PING): (Action.SEND_PING, both),
        (working, Input.PUSH): (Action.SEND_PUSH, pushing),
        (pinging, Input.PUSH): (Action.SEND_PUSH, both),
        (working, Input.DONE): (Action.COMPLETE, idle),
    }
    for state in busy:
        table[state, Input.WANTED] = (Action.ENQUEUE, state)
        table[state, Input.PUSHED] = (Action.TAKE_PUSH, state)
        table[state, Input.DELETE] = (Action.DELETE, idle)
        table[state, Input.MERGE] = (Action.MERGE, state)
        table[state, Input.GIVE_UP] = (Action.GIVE_UP, idle)
        table[state, Input.NO_PUSH] = (Action.FORGET_PUSH, state)
        if state is not working:
            table[state, Input.WAIT] = (Action.NOTHING, state)
    return table


TRANSITIONS: Final = _transitions()
STEPS: Final = {
    int(state): {what: step for (before, what), step in TRANSITIONS.items() if before == state}
    for state in State
}  # the same by state word, as plain integers

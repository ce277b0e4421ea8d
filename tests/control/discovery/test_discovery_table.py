"""The state machine of discovery as it stands in its table (spec discovery.md §4, §5)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ulnet.control.discovery.table import RULES, STATE_MASK, TRANSITIONS, Action, Input, State, decide
from ulnet.core.peer import Peer, PeerFlag
from ulnet.nid import Nid

F = PeerFlag
BITS = {
    F.MULTI_RAIL: 0,
    F.NO_DISCOVERY: 1,
    F.ROUTER_ENABLED: 2,
    F.CONFIGURED: 3,
    F.DISCOVERED: 4,
    F.REDISCOVER: 5,
    F.DISCOVERING: 6,
    F.DATA_PRESENT: 7,
    F.NIDS_UPTODATE: 8,
    F.PING_SENT: 9,
    F.PUSH_SENT: 10,
    F.PING_FAILED: 11,
    F.PUSH_FAILED: 12,
    F.FORCE_PING: 13,
    F.FORCE_PUSH: 14,
    F.RTR_NI_FORCE_DEL: 15,
    F.RTR_DISCOVERY: 16,
    F.RTR_DISCOVERED: 17,
    F.MARK_DELETION: 18,
    F.MARK_DELETED: 19,
    F.LOCK_PRIMARY: 20,
    F.BAD_CONFIG: 21,
}
FROM_OUTSIDE = (Input.WANTED, Input.PUSHED)


@pytest.mark.requirement("HLD-fsm")
def test_flags_have_the_bits_that_peer_show_prints() -> None:
    assert {flag: 1 << bit for flag, bit in BITS.items()} == {flag: int(flag) for flag in PeerFlag}


@pytest.mark.requirement("HLD-fsm")
def test_whatever_comes_from_outside_is_taken_in_every_state() -> None:
    for state in State:
        for one in FROM_OUTSIDE:
            assert TRANSITIONS[state, one][1] & F.DISCOVERING


@pytest.mark.requirement("HLD-fsm")
def test_answers_and_losses_end_what_they_belong_to_and_nothing_else() -> None:
    ends = {
        F.PING_SENT: (Input.REPLY, Input.BAD_REPLY, Input.PING_LOST),
        F.PUSH_SENT: (Input.ACK, Input.PUSH_LOST),
    }
    for bit, inputs in ends.items():
        for state in State:
            for one in inputs:
                assert ((state, one) in TRANSITIONS) == bool(state & bit)
                if state & bit:
                    assert TRANSITIONS[state, one][1] == state & ~bit


@given(st.integers(0, (1 << 22) - 1), st.booleans(), st.booleans())
def test_every_turn_of_a_peer_that_is_being_discovered_is_in_the_table(
    flags: int, push_due: bool, error: bool
) -> None:
    """What is left out cannot be: an exchange that failed is not under way any more."""
    flags |= F.DISCOVERING
    if flags & F.PING_FAILED:
        flags &= ~F.PING_SENT
    if flags & F.PUSH_SENT:
        push_due = False
    what = decide(flags, push_due, error)
    assert (State(flags & STATE_MASK), what) in TRANSITIONS


@given(st.integers(0, (1 << 22) - 1), st.integers(0, (1 << 22) - 1))
def test_settled_follows_the_flags(add: int, remove: int) -> None:
    peer = Peer(Nid.parse("10.0.0.1@tcp"))
    peer.mark(add, remove)
    flags = peer.flags
    known = flags & F.DISCOVERED and flags & F.NIDS_UPTODATE
    unsure = F.REDISCOVER | F.DATA_PRESENT | F.FORCE_PING | F.MARK_DELETION | F.MARK_DELETED
    assert peer.settled == bool(known and not flags & unsure)


def test_the_last_rule_is_done_and_every_input_of_a_turn_has_a_rule() -> None:
    assert RULES[-1] == (Input.DONE, 0, 0, 0, False, None)
    turns = {rule.input for rule in RULES}
    events = {one for one in Input if one not in turns}
    assert {one for _, one in TRANSITIONS} == turns | events
    assert {action for action, _ in TRANSITIONS.values()} == set(Action)


@pytest.mark.parametrize(
    ("flags", "push_due", "error", "what"),
    [
        (F.DATA_PRESENT | F.MARK_DELETION, True, False, Input.DELETE),
        (F.DATA_PRESENT | F.PING_FAILED | F.FORCE_PING, True, True, Input.MERGE),
        (F.PING_FAILED | F.FORCE_PING, True, True, Input.GIVE_UP),
        (F.PING_FAILED, True, False, Input.AGAIN),
        (F.PUSH_FAILED, True, True, Input.GIVE_UP),
        (F(0), True, False, Input.PING),
        (F.NIDS_UPTODATE | F.FORCE_PING, True, False, Input.PING),
        (F.NIDS_UPTODATE | F.FORCE_PING | F.PING_SENT, False, False, Input.WAIT),
        (F.NIDS_UPTODATE, True, False, Input.PUSH),
        (F.NIDS_UPTODATE | F.FORCE_PUSH, False, False, Input.NO_PUSH),
        (F.NIDS_UPTODATE | F.PUSH_SENT, False, False, Input.WAIT),
        (F.NIDS_UPTODATE | F.MULTI_RAIL | F.NO_DISCOVERY, False, False, Input.DELETE),
        (F.NIDS_UPTODATE | F.MULTI_RAIL | F.NO_DISCOVERY | F.CONFIGURED, False, False, Input.DONE),
        (F.NIDS_UPTODATE, False, False, Input.DONE),
    ],
)
def test_the_first_rule_that_fits_is_the_turn(
    flags: PeerFlag, push_due: bool, error: bool, what: Input
) -> None:
    assert decide(int(flags), push_due, error) is what


def test_the_page_shows_the_table_as_it_is() -> None:
    script = Path(__file__).parents[3] / "scripts" / "discovery_page.py"
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr

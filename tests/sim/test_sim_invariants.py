"""Each invariant notices when it does not hold, and says where."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ulnet.control.instance import LNet
from ulnet.core.msg import Msg
from ulnet.core.ni import NI  # noqa: F401 - for the lines of BROKEN
from ulnet.core.peer import Peer  # noqa: F401
from ulnet.nid import Nid
from ulnet.sim import Broken, SimNode, Simulation, invariants
from ulnet.wire.lnet import Header, MsgType

THERE = Nid.parse("10.0.0.2@tcp")
SECOND = Nid.parse("10.1.0.2@tcp1")


def node() -> SimNode:
    """One of two nodes that have talked, at rest."""
    sim = Simulation(1, thorough=True)
    a = sim.node("a", "10.0.0.1@tcp", "10.1.0.1@tcp1")
    b = sim.node("b", THERE, SECOND)
    b.attach(30)
    a.attach(31)
    a.add_peer(THERE, SECOND)
    a.put(THERE, 30, data=b"x")
    sim.run_until_quiet()
    return a


def message() -> Msg:
    return Msg(Header(int(MsgType.PUT)))


def first_ni(core: LNet):  # type: ignore[no-untyped-def]
    return list(core.nis.values())[1]


def pni(core: LNet):  # type: ignore[no-untyped-def]
    found = core.peers.find_ni(THERE)
    assert found is not None
    return found


def corrupt(text: str) -> Callable[[LNet], None]:
    return lambda core: exec(text, {"core": core, **globals()})


BROKEN = [
    ("core.stats.msgs_alloc = -1", "-1 messages"),
    ("core.stats.drops['finalized twice'] = 1", "finalized twice"),
    ("first_ni(core).tx_credits += 1", "257 of 256 credits"),
    ("first_ni(core).refs = -1", "-1 users"),
    ("first_ni(core).tx_queues[0].credits = -2", "its queues have -2 credits"),
    ("first_ni(core).tx_queues[0].waiting.append(message())", "1 messages wait for 256"),
    ("first_ni(core).tx_credits -= 1", "1 credits are in use by 0 messages"),
    ("pni(core).tx_credits -= 1", "1 credits are in use by 0 messages"),
    ("pni(core).tx_credits += 1", "9 of 8 credits"),
    ("pni(core).refs = 0", "0 references"),
    ("pni(core).wait(message())", "1 messages wait for 8 credits"),
    ("pni(core).tx_queued_bytes = -1", "-1 bytes queued"),
    ("pni(core).path_loads[NI(first_ni(core).net, SECOND)] = None", "is gone is kept"),
    ("del pni(core).peer.members[SECOND]", "elsewhere"),
    ("pni(core).peer.primary_nid = Nid.parse('10.9.9.9@tcp')", "its own primary NID"),
    ("core.peers.find(THERE).nets[SECOND.net].nis.clear()", "is empty, or another's"),
    ("core.peers.find_ni(SECOND).peer = Peer(SECOND)", "says that it is elsewhere"),
    ("core.peers._by_nid[SECOND] = pni(core)", "is not found under its NID"),
    ("core.peers._by_nid[Nid.parse('10.9.9.9@tcp')] = pni(core)", "peer NIs are known"),
    ("next(iter(core.memory.mds.values())).refs = -1", "refs -1"),
    ("next(md for md in core.memory.mds.values() if md.me).me.md = None", "do not know each other"),
    ("next(iter(core.memory.mds.values())).acks_due = -1", "more answers than it asked for"),
    ("core.memory.mds.popitem()", "memory that is gone"),
]


@pytest.mark.parametrize(("text", "words"), BROKEN, ids=[text for text, _ in BROKEN])
def test_what_must_hold_at_any_time(text: str, words: str) -> None:
    a = node()
    corrupt(text)(a.core)
    with pytest.raises(Broken) as broken:
        a.sim.check()
    assert words in str(broken.value)
    assert "node a" in str(broken.value)


AT_REST = [
    ("core.stats.msgs_alloc = 1", "1 messages never ended"),
    ("core.state.answers = 1", "1 answers hold credits"),
    ("core.state.defer(print)", "work is left undone"),
    ("next(iter(core.memory.mds.values())).refs = 1", "has 1 operations"),
    ("core.memory.portal(0).delayed[message()] = None", "1 messages wait on portal 0"),
    ("first_ni(core).refs = 1", "1 users"),
    ("first_ni(core).tx_queues[0].credits -= 1", "its queues do not have all"),
    ("pni(core).refs = 2", "2 references"),
    ("pni(core).path_loads[first_ni(core)].outstanding = 5", "bytes count as outstanding"),
    ("core.memory.md_bind(b'')", "bound and never unlinked"),
]


@pytest.mark.parametrize(("text", "words"), AT_REST, ids=[text for text, _ in AT_REST])
def test_what_must_hold_at_rest(text: str, words: str) -> None:
    a = node()
    corrupt(text)(a.core)
    with pytest.raises(Broken) as broken:
        a.sim.check_at_rest()
    assert words in str(broken.value)


def test_the_checkers_serve_any_lnet() -> None:
    core = node().core
    assert invariants.quickly(core) == ""
    assert invariants.now_and_then(core) == ""
    assert invariants.at_rest(core) == ""
    core.stats.msgs_alloc = 3
    assert invariants.at_rest(core) == "3 messages never ended"


def test_a_thousand_nodes_in_one_process() -> None:
    sim = Simulation(1, check=False)
    nodes = [sim.node(f"n{n}", f"10.0.{n >> 8}.{n & 255}@tcp") for n in range(1000)]
    for one in nodes:
        one.attach(30, size=64, keep_data=False)
    puts = [one.put(nodes[(n + 1) % 1000].nid, 30, data=b"x") for n, one in enumerate(nodes)]
    sim.run_until_quiet()
    assert all(put.ok for put in puts)

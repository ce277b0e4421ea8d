"""Descriptors where a process has few: what an address has most of gives way to those who have less."""

from __future__ import annotations

import errno
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from hypothesis import given
from hypothesis import strategies as st

from lnd.conftest import Addresses
from lnd.kit import RawPeer, Side, connect, dial, hello_bytes, lnet_frame, noop, put_header, turns, until
from ulnet.core.status import HealthStatus
from ulnet.lnd.tcp.callers import Callers
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.acceptor import ConnRequest
from ulnet.wire.socklnd import KEEPALIVE_COOKIE, ConnType

Make = Callable[..., Side]
NOW = 1000.0
KINDS = (ConnType.CONTROL, ConnType.BULK_IN, ConnType.BULK_OUT)


@contextmanager
def few_files(more: int) -> Iterator[int]:
    """This process may have so many descriptors more; the first one that is not for callers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as probe:
        most = probe.fileno() + more
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        yield most - min(64, most // 8)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def try_to_connect(a: Side, nid: str, pid: int = LNET_PID) -> RawPeer | None:
    """A connection that is through, or None where it is refused."""
    with suppress(ConnectionError, AssertionError):
        return await connect(a, nid, pid=pid)
    RawPeer.opened.pop().close()
    return None


async def take_all(a: Side, nid: str) -> list[RawPeer]:
    """All connections that an address gets by naming another PID each time."""
    taken: list[RawPeer] = []
    for pid in range(1, 200):
        raw = await try_to_connect(a, nid, pid)
        if raw is None:
            return taken
        taken.append(raw)
    raise AssertionError("all descriptors were given away")


def files_of(a: Side) -> list[int]:
    return [conn.sock.fileno() for peer in a.state().peers.values() for conn in peer.conns if conn.sock]


async def ends(raw: RawPeer) -> None:
    assert await raw.rest() == (b"", "EOF")
    raw.close()


async def test_an_address_with_most_connections_gives_way_to_others(make: Make, at: Addresses) -> None:
    """One address takes all there are; each one that has fewer gets what it needs, and none of those kept."""
    with few_files(80) as most:
        a = make(at.nid(1))
        greedy = await take_all(a, at.nid(2))
        count = len(greedy)
        assert count > 20
        others = []
        for host in range(3, 6):
            for kind in KINDS:
                others.append(await connect(a, at.nid(host), kind))
                await ends(greedy.pop(0))
                assert await try_to_connect(a, at.nid(2), 1000 + len(others)) is None
                assert max(files_of(a)) < most
            assert len(a.kinds(at.nid(host))) == 3
        assert a.lnd.open_connections == count
        assert any("others call, of which this process" in line for line in a.reports)
        await others[0].send(lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(3)), 0)))
        await until(a.core.complete(1))


async def test_nobody_with_as_few_gives_way(make: Make, at: Addresses) -> None:
    """Else two would push each other out for ever."""
    with few_files(80):
        a = make(at.nid(1))
        peers: list[RawPeer] = []
        for host in range(3, 100):
            raw = await try_to_connect(a, at.nid(host))
            if raw is None:
                break
            peers.append(raw)
        assert a.lnd.open_connections == len(peers) > 20


async def test_what_was_used_or_has_a_message_under_way_gives_way_last(make: Make, at: Addresses) -> None:
    with few_files(80):
        a = make(at.nid(1), sweep_interval=0.01)
        greedy = await take_all(a, at.nid(2))
        busy, used, idle = greedy[:3]
        await busy.send(lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(2)), 0))[:50])
        before = a.peer(at.nid(2), 2).last_alive
        while a.peer(at.nid(2), 2).last_alive <= before:
            await used.send(noop(0, KEEPALIVE_COOKIE))
            await turns()
        await until(lambda: not a.peer(at.nid(2), 1).conns[0].rx.between)
        await connect(a, at.nid(3))
        await ends(idle)
        await busy.silent()
        await used.silent()


async def test_where_all_have_messages_under_way_one_of_them_gives_way(make: Make, at: Addresses) -> None:
    """What waits for it fails as the peer's fault, and may be sent again."""
    with few_files(80):
        a = make(at.nid(1))
        greedy = await take_all(a, at.nid(2))
        for raw in greedy:
            await raw.send(lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(2)), 0))[:50])
        peers = [a.peer(at.nid(2), pid) for pid in range(1, len(greedy) + 1)]
        await until(lambda: not any(peer.conns[0].rx.between for peer in peers))
        greedy[0].sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        msgs = [a.put(at.nid(2), b"x" * (1 << 20), pid=1) for _ in range(8)]
        await turns()
        await connect(a, at.nid(3))
        outcome = await a.ended(msgs[-1])
        assert (outcome.status, outcome.errno) == (HealthStatus.REMOTE_DROPPED, errno.EMFILE)


async def test_handshakes_of_others_do_not_give_way_to_who_has_most(make: Make, at: Addresses) -> None:
    with few_files(80):
        a = make(at.nid(1), accept_timeout=60)
        greedy = await take_all(a, at.nid(2))
        slow = await dial(a, at.ip(3))
        await ends(greedy.pop(0))
        await until(lambda: a.lnd.pending_handshakes == 1)
        for pid in range(1000, 1010):
            assert await try_to_connect(a, at.nid(2), pid) is None
        await slow.send(ConnRequest.to(a.ni.nid).pack())
        await slow.send(hello_bytes(Nid.parse(at.nid(3)), a.ni.nid))
        assert (await slow.read_hello()).ctype == ConnType.CONTROL


async def test_handshakes_give_way_before_peers_with_few_connections(make: Make, at: Addresses) -> None:
    with few_files(80):
        a = make(at.nid(1), accept_timeout=60)
        friends = [await connect(a, at.nid(3), kind) for kind in KINDS]
        waiting: list[RawPeer] = []
        for host in range(4, 100):
            waiting.append(await dial(a, at.ip(host)))
            await turns()
            if a.lnd.pending_handshakes < len(waiting):
                break
        await ends(waiting.pop(0))
        for raw in friends:
            await raw.silent()


class FakeCaller:
    wanted: Nid | None = None

    def drop(self) -> None:
        raise AssertionError("nobody has to")

    def give_way(self) -> None:
        raise AssertionError("nobody has to")

    def used_at(self) -> float:
        return 0.0

    def is_idle(self) -> bool:
        return True


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.booleans()), max_size=60))
def test_who_has_most_is_known_at_any_time(steps: list[tuple[int, bool, bool]]) -> None:
    callers = Callers()
    inside: list[tuple[str, FakeCaller, bool]] = []
    for number, enters, through in steps:
        address = f"10.0.0.{number}"
        own = [one for one in inside if one[0] == address]
        if enters:
            inside.append((address, FakeCaller(), through))
            (callers.entered if through else callers.begins)(inside[-1][1], address)
        elif own:
            _, caller, established = own[0]
            inside.remove(own[0])
            if established:
                callers.left(caller, address)
            else:
                assert callers.ended(caller)
        counts = [[one[0] for one in inside].count(f"10.0.0.{number}") for number in range(5)]
        assert callers.most == max(counts)


class Shelf:
    """Callers whose connections are objects alone; what gave way, in order."""

    def __init__(self) -> None:
        self.callers = Callers()
        self.gone: list[tuple[str, str]] = []
        self.inside: dict[str, list[Through]] = {}

    def dial(self, address: str, count: int = 1) -> None:
        for _ in range(count):
            self.callers.begins(Begun(self, address), address)

    def connect(self, address: str, count: int, used: float = NOW, busy: bool = False) -> None:
        """A peer with so many connections."""
        siblings: list[Through] = []
        for _ in range(count):
            siblings.append(Through(self, address, used, busy, siblings))
            self.callers.entered(siblings[-1], address)

    def calls(self, address: str) -> list[tuple[str, str]]:
        """What gives way to it, which then has a handshake; nothing: it is refused."""
        before = len(self.gone)
        if self.callers.make_way(address, NOW):
            self.dial(address)
        return self.gone[before:]


class Begun:
    def __init__(self, shelf: Shelf, address: str) -> None:
        self.wanted: Nid | None = None
        self.shelf = shelf
        self.address = address

    def give_way(self) -> None:
        self.shelf.gone.append(("handshake", self.address))
        assert self.shelf.callers.ended(self)

    def drop(self) -> None:
        raise AssertionError("it was told to give way")


class Through:
    def __init__(self, shelf: Shelf, address: str, used: float, busy: bool, siblings: list[Through]) -> None:
        self.shelf = shelf
        self.address = address
        self.used = used
        self.busy = busy
        self.siblings = siblings

    def is_idle(self) -> bool:
        return not self.busy

    def used_at(self) -> float:
        return self.used

    def give_way(self) -> None:
        self.shelf.gone.append(("busy" if self.busy else "idle", self.address))
        for one in self.siblings:
            self.shelf.callers.left(one, self.address)


def test_half_open_connections_of_many_give_way_before_a_busy_peer() -> None:
    """Each of them has fewer than the peer, which has as many as peers have."""
    shelf = Shelf()
    shelf.connect("friend", 9, busy=True)
    for number in range(237):
        shelf.dial(f"foe{number}", 4)
    assert [shelf.calls(f"new{number}") for number in range(6)] == [
        *[[("handshake", "foe0")]] * 4,
        *[[("handshake", "foe1")]] * 2,
    ]


def test_old_handshakes_of_who_has_little_do_not_shield_those_of_who_has_more() -> None:
    shelf = Shelf()
    for number in range(20):
        shelf.dial(f"poor{number}")
    for number in range(40):
        shelf.dial(f"foe{number}", 4)
    shelf.connect("new", 1)
    assert shelf.calls("new") == [("handshake", "foe0")]


def test_busy_peers_with_as_many_connections_as_others_do_not_push_each_other_out() -> None:
    """Who was closed for a newcomer would call again with none, and the next one would be closed for it."""
    shelf = Shelf()
    for number in range(193):
        shelf.connect(f"peer{number}", 5, busy=True)
    for _ in range(3):
        assert shelf.calls("new") == []


def test_only_who_was_idle_for_a_while_gives_way_to_who_has_less() -> None:
    shelf = Shelf()
    for number in range(100):
        shelf.connect(f"peer{number}", 5, used=NOW - 1)
    assert shelf.calls("new") == []
    shelf.connect("one", 1, used=NOW - 60)
    shelf.connect("two", 2, used=NOW - 30)
    tries = [shelf.calls("new") for _ in range(20)]
    assert next(one for one in tries if one) == [("idle", "two")]
    assert ("idle", "one") not in shelf.gone


def test_an_idle_peer_is_found_among_busy_ones_that_have_more() -> None:
    """Not at the first try perhaps: few are looked at each time."""
    shelf = Shelf()
    for number in range(100):
        shelf.connect(f"peer{number}", 5, busy=True)
    shelf.connect("rests", 4, used=NOW - 60)
    tries = [shelf.calls("new") for _ in range(60)]
    assert [("idle", "rests")] in tries
    assert not any(what == "busy" for what, _ in shelf.gone)


def test_who_has_a_good_part_of_all_gives_way_even_when_busy() -> None:
    shelf = Shelf()
    for number in range(100):
        shelf.connect(f"peer{number}", 5, busy=True)
    for number in range(41):
        shelf.connect("foe", 1, busy=number != 8)
    shelf.dial("other", 2)
    shelf.dial("foe")
    assert [shelf.calls(f"new{number}") for number in range(3)] == [
        [("handshake", "foe")],
        [("idle", "foe")],
        [("busy", "foe")],
    ]

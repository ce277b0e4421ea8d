"""Match entries: kinds of portal, order, delayed matching (spec md-me-eq.md §1, §2)."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fabric import Fabric, Recorder
from support.stream import NO_PAYLOAD
from ulnet.core.delayed import MAX_DELAYED, OUSTED
from ulnet.core.md import MdOption
from ulnet.core.status import LNetError
from ulnet.nid import ANY_NID, LNET_PID, PID_ANY, Nid
from ulnet.wire.lnet import Header, MsgType

A, B, C, FOE = (Nid.parse(f"10.0.0.{n}@tcp") for n in (1, 2, 3, 66))
TARGET = MdOption.OP_PUT | MdOption.TRUNCATE


@pytest.fixture
def pair():
    fabric = Fabric()
    yield fabric, fabric.node(str(A)), fabric.node(str(B))
    fabric.run()
    fabric.assert_conserved()


def send(fabric, core, bits=7, portal=5, data=b"1234", target=B):
    core.put(core.memory.md_bind(data, None, threshold=1), target, portal, bits, ack=False)
    fabric.run()


def entry(core, events, *, size=100, head=False, options=TARGET, **me):
    made = core.memory.me_attach(5, at_head=head, **me)
    core.memory.md_attach(made, bytearray(size), events, options=options)
    return made


@pytest.mark.requirement("MD")
def test_portal_keeps_the_kind_of_its_first_entry(pair):
    _, _, b = pair
    entry(b, None, match_bits=1, nid=A, pid=12345)
    for wild in ({"nid": ANY_NID}, {"pid": PID_ANY, "nid": A}, {"nid": A, "pid": 1, "ignore_bits": 3}):
        with pytest.raises(LNetError, match="unique match entries") as refused:
            b.memory.me_attach(5, match_bits=2, **wild)
        assert refused.value.errno == errno.EPERM


def test_unique_portal_matches_only_its_sender(pair):
    fabric, a, b = pair
    got, other = Recorder(), Recorder()
    entry(b, got, match_bits=7, nid=A, pid=12345)
    entry(b, other, match_bits=7, nid=C, pid=12345)
    send(fabric, a)
    send(fabric, a, bits=8)
    assert len(got) == 1
    assert not other
    assert b.stats.drop_count == 1


class Looked(dict[object, object]):
    """Lists of entries, that counts how often one is looked for."""

    looks = 0

    def get(self, key, default=None):
        self.looks += 1
        return super().get(key, default)


def test_entries_are_not_looked_for_by_each_nid_of_a_sender(pair):
    """A peer may list thousands."""
    fabric, a, b = pair
    b.peers.add(A, [Nid.parse(f"10.7.{at // 250}.{at % 250}@tcp5") for at in range(2000)])
    for nid in ("10.0.0.3@tcp", "10.7.3.4@tcp5"):
        got = Recorder()
        entry(b, got, match_bits=7, nid=Nid.parse(nid), pid=12345)
        portal = b.memory.portals[5]
        looked = portal.exact = Looked(portal.exact)
        send(fabric, a)
        assert looked.looks < 9
    assert len(got) == 1


@given(
    st.lists(st.tuples(st.integers(0, 7), st.sampled_from([7, 8]), st.booleans()), min_size=1, max_size=12),
    st.lists(st.integers(0, 11), max_size=6),
)
def test_a_unique_portal_prefers_nids_as_their_peer_has_them(entries, gone):
    """The primary first, then the others in order; among entries for one NID the first in the list."""
    core = Fabric().node(str(B))
    nids = [Nid.parse(f"10.{at % 2}.0.{at + 10}@tcp{at % 2 or ''}") for at in range(8)]
    core.peers.add(nids[3], nids[:6])
    peer = core.peers.find(nids[0])
    kept = []
    for at, bits, head in entries:
        me = entry(core, None, head=head, match_bits=bits, nid=nids[at], pid=12345)
        kept.insert(0 if head else len(kept), me)
    for at in gone:
        if at < len(kept) and kept[at].linked:
            core.memory.me_unlink(kept[at])
    kept = [me for me in kept if me.linked]
    hdr = Header(int(MsgType.PUT), B, nids[0], portal=5, match_bits=7, src_pid=12345)
    wanted = next((me.md for nid in peer.nids() for me in kept if me.match_bits == 7 and me.nid == nid), None)
    found = core.memory.portals[5].match(hdr, peer)
    assert (None if isinstance(found, str) else found[0]) is wanted


@pytest.mark.requirement("MD")
@pytest.mark.parametrize("nid", [A, C])
@pytest.mark.parametrize("ignore_bits", [0, 1])
def test_another_nid_of_the_same_peer_matches_too(pair, nid, ignore_bits):
    fabric, a, b = pair
    b.peers.add(C, [A])
    got = Recorder()
    entry(b, got, match_bits=7, nid=nid, pid=12345, ignore_bits=ignore_bits)
    send(fabric, a)
    assert got[0].initiator == C  # the primary NID …
    assert got[0].source == A  # … beside the one it came from


def test_entries_with_ignore_bits_come_first_then_list_order(pair):
    fabric, a, b = pair
    exact, wide, head = Recorder(), Recorder(), Recorder()
    entry(b, exact, match_bits=7)
    wide_me = entry(b, wide, match_bits=0, ignore_bits=0xFF)
    send(fabric, a)
    assert (len(wide), len(exact)) == (1, 0)
    head_me = entry(b, head, match_bits=0, ignore_bits=0xF, head=True)
    send(fabric, a)
    assert len(head) == 1
    b.memory.me_unlink(head_me)
    b.memory.me_unlink(wide_me)
    send(fabric, a)
    assert len(exact) == 1
    assert head.kinds == ["PUT", "UNLINK"]


def test_get_and_put_find_their_own_descriptors(pair):
    fabric, a, b = pair
    puts = Recorder()
    entry(b, None, match_bits=7, options=MdOption.OP_GET)
    entry(b, puts, match_bits=7)
    send(fabric, a)
    assert len(puts) == 1


@pytest.mark.parametrize("portal", [64, 1 << 31, 0xFFFFFFFF])
def test_portals_that_do_not_exist_drop(pair, portal):
    """Our own nodes refuse to send there; others may."""
    fabric, a, b = pair
    for kind in (MsgType.PUT, MsgType.GET):
        hdr = Header(kind, B, A, LNET_PID, LNET_PID, 0, b"w" * 16, 7, portal=portal, length=4)
        assert b.receiver(b.nis[B], A).begin(hdr, NO_PAYLOAD) == 0
        fabric.run()
    assert b.stats.drop_count == 2
    md = a.memory.md_bind(bytearray(4), None, threshold=2)
    for call in (a.put, a.get):
        with pytest.raises(LNetError, match=rf"portal {portal}: portals are numbered 0\.\.63"):
            call(md, B, portal, 7)
    a.memory.md_unlink(md)
    with pytest.raises(LNetError, match=r"0\.\.63"):
        b.memory.me_attach(portal, match_bits=0)


@pytest.mark.parametrize("bits", [-1, 1 << 64])
def test_match_bits_are_64_bits(pair, bits):
    with pytest.raises(LNetError, match="64-bit"):
        pair[2].memory.me_attach(5, match_bits=bits)


@pytest.mark.requirement("MD")
def test_lazy_portal_holds_puts_until_memory_comes(pair):
    fabric, a, b = pair
    b.memory.set_lazy(5)
    send(fabric, a, data=b"first")
    send(fabric, a, data=b"second")
    send(fabric, a, bits=9, data=b"other")
    send(fabric, a, data=b"")
    assert len(fabric.delayed) == 3
    assert b.stats.msgs_alloc == 4
    got = Recorder()
    entry(b, got, match_bits=7)
    assert [(event.offset, event.mlength) for event in got] == [(0, 5), (5, 6), (11, 0)]
    assert len(fabric.delayed) == 1
    b.memory.set_lazy(5, False)
    assert b.stats.drops["portal is no longer lazy"] == 1


def test_gets_are_never_held(pair):
    fabric, a, b = pair
    b.memory.set_lazy(5)
    md = a.memory.md_bind(bytearray(4), None, threshold=2)
    a.get(md, B, 5, 7)
    fabric.run()
    a.memory.md_unlink(md)
    assert b.stats.drop_count == 1


def test_closed_connection_takes_its_held_messages_along(pair):
    fabric, a, b = pair
    b.memory.set_lazy(5)
    send(fabric, a)
    (rx,) = fabric.delayed
    fabric.break_delivery(rx)
    assert b.stats.drop_count == 1
    assert b.stats.msgs_alloc == 0
    entry(b, got := Recorder(), match_bits=7)
    assert not got


def flood(core, hop, count, bits=0xDEAD):
    """PUTs without payload that nothing matches, as fast as one next hop sends them."""
    receiver = core.receiver(core.nis[B], hop)
    for _ in range(count):
        receiver.begin(Header(int(MsgType.PUT), B, hop, portal=5, match_bits=bits), NO_PAYLOAD)


def test_strangers_cannot_fill_a_lazy_portal(pair):
    fabric, a, b = pair
    b.memory.set_lazy(5)
    for _ in range(MAX_DELAYED // 2 + 10):
        a.put(a.memory.md_bind(b"", None, threshold=1), B, 5, 7, ack=False)
    fabric.run(limit=100_000)
    assert len(b.memory.portal(5).delayed) == MAX_DELAYED // 2 == 4096
    assert b.stats.drop_count == 10
    b.memory.set_lazy(5, False)


@pytest.mark.requirement("MD")
def test_one_next_hop_leaves_places_on_a_lazy_portal_for_others(pair):
    """4,096 PUTs of 96 bytes took all places for ever: PUTs of others were dropped that had waited before."""
    fabric, a, b = pair
    b.memory.set_lazy(5)
    flood(b, FOE, MAX_DELAYED)
    done = Recorder()
    for data in (b"request", b""):
        a.put(a.memory.md_bind(data, done, threshold=2), B, 5, 7)
    fabric.run()
    entry(b, got := Recorder(), match_bits=7)
    fabric.run()
    assert got.kinds == ["PUT", "PUT"]
    assert [kind for kind in done.kinds if kind != "SEND"] == ["ACK", "ACK"]
    b.memory.set_lazy(5, False)
    assert not b.memory.portal(5).hops
    fabric.assert_conserved()


def test_what_waits_longest_makes_room_for_who_has_no_place_when_its_sender_has_given_up(pair):
    """Thirteen next hops have all places. What still waits after the senders' time is not for ever."""
    fabric, _, b = pair
    b.memory.set_lazy(5)
    hops = [Nid.parse(f"10.0.1.{number}@tcp") for number in range(15)]
    fabric.clock.now += 1.0
    for hop in hops:
        flood(b, hop, MAX_DELAYED)
    portal = b.memory.portal(5)
    assert portal.hops == {hop: MAX_DELAYED >> number for number, hop in enumerate(hops[:13], 1)}
    fabric.clock.now += b.state.settings.transaction_timeout - 1.0
    flood(b, A, 1)
    assert A not in portal.hops
    fabric.clock.now += 2.0
    flood(b, hops[0], 1)  # has places
    assert b.stats.drops[OUSTED] == 0
    flood(b, A, 2, bits=7)
    assert portal.hops[A] == 1
    assert portal.hops[hops[0]] == MAX_DELAYED // 2 - 1
    assert b.stats.drops[OUSTED] == 1
    entry(b, got := Recorder(), match_bits=7)
    assert got.kinds == ["PUT"]
    b.memory.set_lazy(5, False)
    fabric.run()
    assert not portal.hops
    fabric.assert_conserved()


def test_shutdown_drops_what_waits(pair):
    fabric, a, b = pair
    b.memory.set_lazy(5)
    send(fabric, a)
    b.memory.close()
    assert b.stats.drops["the node shuts down"] == 1


# An independent model: a plain list of entries, searched as the specification words it. -------------

senders = st.sampled_from([A, C])
specs = st.lists(
    st.tuples(
        st.integers(0, 3),  # match bits
        st.sampled_from([0, 1, 3]),  # ignore bits
        st.sampled_from([ANY_NID, A, C]),
        st.integers(1, 3),  # threshold
        st.integers(0, 6),  # length
        st.booleans(),  # truncate
        st.booleans(),  # head
    ),
    max_size=6,
)
messages = st.lists(st.tuples(senders, st.integers(0, 3), st.integers(0, 8)), max_size=15)


@pytest.mark.requirement("MD")
@given(specs, messages)
def test_matching_agrees_with_a_naive_model(entries, traffic):
    fabric = Fabric()
    nodes = {nid: fabric.node(str(nid)) for nid in (A, B, C)}
    b = nodes[B]
    got: list[tuple[int, int, int]] = []
    model: list[dict[str, object]] = []
    for index, (bits, ignore, nid, threshold, length, truncate, head) in enumerate(entries):
        options = MdOption.OP_PUT | (MdOption.TRUNCATE if truncate else 0)
        me = b.memory.me_attach(5, match_bits=bits, ignore_bits=ignore, nid=nid, at_head=head)
        b.memory.md_attach(
            me,
            bytearray(length),
            lambda event, index=index: got.append((index, event.offset, event.mlength)),
            options=options,
            threshold=threshold,
        )
        row = {"index": index, "bits": bits, "ignore": ignore, "nid": nid, "trunc": truncate}
        row |= {"left": threshold, "room": length, "used": 0}
        model.insert(0, row) if head else model.append(row)
    expected = []
    for source, bits, size in traffic:
        send(fabric, nodes[source], bits=bits, data=bytes(size))
        for row in sorted(model, key=lambda row: not row["ignore"]):
            if (row["bits"] ^ bits) & ~row["ignore"] or not row["left"]:
                continue
            if row["nid"] not in (ANY_NID, source):
                continue
            fits = min(size, row["room"] - row["used"])
            if fits == size or row["trunc"]:
                expected.append((row["index"], row["used"], fits))
                row["left"] -= 1
                row["used"] += fits
            break
    assert got == expected
    assert b.stats.drop_count == len(traffic) - len(expected)
    fabric.assert_conserved()

"""Keys by which peers write to memory: each for the bytes of one transfer, and void when that is over."""

from __future__ import annotations

import errno

import pytest

from lnd.o2ib.test_handshake import conns
from lnd.o2ib.test_hostile import connected, ends
from lnd.o2ib.test_traffic import BIG, PORTAL, header, write
from support.rdma import PARAMS, SHAPE, Stranger
from ulnet.core.md import Md
from ulnet.core.status import LNetError
from ulnet.lnd.o2ib import abi
from ulnet.sim import SimNode, Simulation
from ulnet.sim.verbs import SimDevice, SimPair, SimRegion
from ulnet.wire.lnet import MsgType
from ulnet.wire.o2ib import O2ibMessage, O2ibType, Reason

pytestmark = pytest.mark.requirement("LND-o2ib")
REMOTE_READ, REMOTE_ATOMIC = 4, 8  # flags of ibv_reg_mr


def place(message: O2ibMessage) -> tuple[int, int, int]:
    """Key, address and length of the memory that a message offers."""
    assert message.target is not None
    ((length, address),) = message.target.fragments
    return message.target.key, address, length


def writes(stranger: Stranger, data: bytes, key: int, address: int) -> None:
    assert stranger.pair is not None
    stranger.pair.post([write(stranger, data, key, address)])


def offered(stranger: Stranger, node: SimNode, offset: int = 0) -> O2ibMessage:
    """The PUT_ACK to a large PUT."""
    hdr = header(stranger, node, payload_length=BIG, offset=offset)
    stranger.say_lnet(O2ibType.PUT_REQ, hdr, cookie=5)
    return stranger.wait_for(O2ibType.PUT_ACK)


def remote(node: SimNode) -> list[int]:
    """Lengths of the memory that any peer may write to."""
    device = node.o2ib.states[node.nid].device
    assert isinstance(device, SimDevice)
    return [region.view.nbytes for region in device.regions.values() if region.remote]


def asks(node: SimNode, stranger: Stranger, md: Md) -> O2ibMessage:
    """The GET_REQ to a GET into md."""
    node.loop.enter(lambda: node.core.get(md, stranger.nid, PORTAL, 0))
    return stranger.wait_for(O2ibType.GET_REQ)


def unlink(node: SimNode, md: Md) -> None:
    node.loop.enter(lambda: node.core.memory.md_unlink(md))


def breaks(sim: Simulation, evil: Stranger) -> None:
    sim.run_until(lambda: evil.hung_up or bool(evil.failed))
    assert evil.failed == "remote access error"


def another(sim: Simulation, node: SimNode) -> Stranger:
    """A second peer, which keeps to the protocol."""
    honest = Stranger(sim, "10.0.0.8@o2ib")
    honest.call(node)
    node.ping(honest.nid)
    sim.run_until_quiet()
    return honest


def test_the_key_of_one_peers_put_does_not_reach_that_of_another() -> None:
    sim, node, evil = connected()
    honest = another(sim, node)
    ack = offered(evil, node)
    key, address, _ = place(ack)
    writes(evil, b"E" * BIG, key, address)
    evil.say(O2ibType.PUT_DONE, cookie=ack.sink_cookie)
    sim.run_until_quiet()
    ack = offered(honest, node)
    honest_key, address, _ = place(ack)
    assert honest_key == key  # the device hands it out again, for the same memory
    writes(honest, b"H" * BIG, honest_key, address)
    sim.run(0.001)
    writes(evil, b"X" * BIG, key, address)
    breaks(sim, evil)
    honest.say(O2ibType.PUT_DONE, cookie=ack.sink_cookie)
    sim.run_until_quiet()
    (inbox,) = node.inboxes
    found = [(str(one.initiator), one.status, bytes(one.data)) for one in inbox.deliveries]
    assert found == [("10.0.0.9@o2ib", 0, b"E" * BIG), ("10.0.0.8@o2ib", 0, b"H" * BIG)]
    assert len(conns(node)) == 1


def calls_as(evil: Stranger, honest: Stranger, node: SimNode) -> None:
    """evil has another connection of the honest peer."""
    assert evil.pair is not None
    evil.pair.close()
    private = honest.message(O2ibType.CONNREQ, params=PARAMS).pack()
    evil.pair = honest.device.connect(node.nid.ip, evil, private, SHAPE)


@pytest.mark.parametrize("kind", [O2ibType.PUT_ACK, O2ibType.GET_REQ])
@pytest.mark.parametrize("again", [False, True])
def test_the_key_that_one_peer_has_now_is_void_for_another(kind: O2ibType, again: bool) -> None:
    """Whoever knows it; also on another connection of that peer."""
    sim, node, evil = connected()
    honest = another(sim, node)
    data = bytearray(BIG)
    md = node.core.memory.md_bind(data)
    offer = offered(honest, node) if kind is O2ibType.PUT_ACK else asks(node, honest, md)
    key, address, _ = place(offer)
    if again:
        calls_as(evil, honest, node)
        sim.run(0.1)
    writes(evil, b"X" * BIG, key, address)
    breaks(sim, evil)
    writes(honest, b"H" * BIG, key, address)
    if kind is O2ibType.PUT_ACK:
        honest.say(O2ibType.PUT_DONE, cookie=offer.sink_cookie)
    else:
        honest.say(O2ibType.GET_DONE, cookie=offer.cookie, status=BIG)
    unlink(node, md)
    sim.run_until_quiet()
    found = [bytes(one.data) for one in node.inboxes[0].deliveries]
    assert (found or [bytes(data)]) == [b"H" * BIG]
    assert not honest.failed
    assert not remote(node)


def test_a_key_is_void_after_put_done() -> None:
    sim, node, stranger = connected()
    ack = offered(stranger, node)
    stranger.say(O2ibType.PUT_DONE, cookie=ack.sink_cookie)
    sim.run_until_quiet()
    key, address, _ = place(ack)
    writes(stranger, b"!" * BIG, key, address)
    breaks(sim, stranger)
    inbox = node.inboxes[0]
    assert inbox.md is not None and not any(inbox.md.fragments[0])
    ends(sim, node, stranger)


def test_a_put_is_delivered_when_its_key_is_void() -> None:
    """Also where PUT_DONE comes, its cookie guessed, before the device has said that PUT_ACK has left."""
    sim, node, stranger = connected()
    cookie = node.o2ib.states[node.nid].cookie() + 1
    stranger.say_lnet(O2ibType.PUT_REQ, header(stranger, node, payload_length=BIG), cookie=5)
    stranger.say(O2ibType.PUT_DONE, cookie=cookie)
    inbox = node.inboxes[0]
    sim.run_until(lambda: len(inbox) == 1)
    assert not remote(node)
    assert stranger.wait_for(O2ibType.PUT_ACK).sink_cookie == cookie
    sim.run_until_quiet()


def test_a_key_is_void_after_a_put_that_failed() -> None:
    sim, node, stranger = connected()
    ack = offered(stranger, node)
    stranger.say(O2ibType.PUT_DONE, cookie=ack.sink_cookie, status=-errno.EIO)
    sim.run_until_quiet()
    key, address, _ = place(ack)
    writes(stranger, b"!", key, address)
    breaks(sim, stranger)
    ends(sim, node, stranger)


@pytest.mark.parametrize("kind", [O2ibType.PUT_ACK, O2ibType.GET_REQ])
@pytest.mark.parametrize("late", [True, False])
def test_a_key_is_void_after_its_connection(kind: O2ibType, late: bool) -> None:
    """Which the peer ends, or which ends because its answer is late."""
    sim, node, stranger = connected()
    data = bytearray(BIG)
    md = node.core.memory.md_bind(data)
    offer = offered(stranger, node) if kind is O2ibType.PUT_ACK else asks(node, stranger, md)
    assert remote(node) == [BIG]
    if late:
        sim.run_until(lambda: stranger.hung_up)
    else:
        assert stranger.pair is not None
        stranger.pair.close()
    unlink(node, md)
    sim.run_until_quiet()
    assert not remote(node)
    stranger.call(node)
    key, address, _ = place(offer)
    writes(stranger, b"!", key, address)
    breaks(sim, stranger)
    inbox = node.inboxes[0]
    assert inbox.md is not None and not any(inbox.md.fragments[0]) and not any(data)
    ends(sim, node, stranger)


@pytest.mark.parametrize(
    ("behind", "length"), [(-1, 1), (-1000, BIG), (1, BIG), (BIG, 1), (BIG - 1, 2), (BIG, BIG)]
)
def test_a_key_is_for_the_bytes_of_its_transfer(behind: int, length: int) -> None:
    sim, node, stranger = connected()
    ack = offered(stranger, node, offset=1000)
    key, address, size = place(ack)
    assert size == BIG and remote(node) == [BIG]
    writes(stranger, b"!" * length, key, address + behind)
    breaks(sim, stranger)
    inbox = node.inboxes[0]
    assert inbox.md is not None and not any(inbox.md.fragments[0])
    ends(sim, node, stranger)


def test_what_is_cut_short_has_no_key_for_the_rest() -> None:
    sim, node, stranger = connected()
    inbox = node.inboxes[0]
    assert inbox.md is not None
    ack = offered(stranger, node, offset=inbox.md.length - 5000)
    assert place(ack)[2] == 5000 and remote(node) == [5000]
    stranger.say(O2ibType.PUT_DONE, cookie=ack.sink_cookie)
    sim.run_until_quiet()
    assert not remote(node)


@pytest.mark.parametrize("status", [BIG, 0, -errno.ENODATA])
def test_the_key_of_a_get_is_void_after_get_done(status: int) -> None:
    """Also where the descriptor serves other GETs, whose peers write to the same memory."""
    sim, node, evil = connected()
    honest = another(sim, node)
    data = bytearray(BIG)
    md = node.core.memory.md_bind(data)
    asked = asks(node, evil, md)
    evil.say(O2ibType.GET_DONE, cookie=asked.cookie, status=status)
    sim.run(0.1)
    assert not remote(node)
    other = asks(node, honest, md)
    assert remote(node) == [BIG]
    honest_key, address, _ = place(other)
    writes(honest, b"H" * BIG, honest_key, address)
    sim.run(0.001)
    assert honest_key == place(asked)[0]
    writes(evil, b"X" * BIG, place(asked)[0], address)
    breaks(sim, evil)
    honest.say(O2ibType.GET_DONE, cookie=other.cookie, status=BIG)
    unlink(node, md)
    sim.run_until_quiet()
    assert data == b"H" * BIG
    assert not remote(node)


@pytest.mark.parametrize(("behind", "length"), [(-1, BIG), (1, BIG), (BIG, 1)])
def test_the_key_of_a_get_is_for_its_memory(behind: int, length: int) -> None:
    sim, node, stranger = connected()
    whole = bytearray(3 * BIG)
    md = node.core.memory.md_bind(memoryview(whole)[BIG : 2 * BIG])
    key, address, size = place(asks(node, stranger, md))
    assert size == BIG and remote(node) == [BIG]
    writes(stranger, b"!" * length, key, address + behind)
    breaks(sim, stranger)
    assert not any(whole)
    unlink(node, md)
    ends(sim, node, stranger)


def test_a_get_is_delivered_when_its_key_is_void() -> None:
    """Also memory in pieces, which has a copy: that is no longer written to when it is copied."""
    sim, node, stranger = connected()
    pieces = [bytearray(BIG), bytearray(BIG)]
    left: list[list[int]] = []
    md = node.core.memory.md_bind(pieces, lambda event: left.append(remote(node)))
    key, address, size = place(asked := asks(node, stranger, md))
    writes(stranger, b"p" * size, key, address)
    stranger.say(O2ibType.GET_DONE, cookie=asked.cookie, status=size)
    sim.run_until(lambda: len(left) == 2)  # SEND, REPLY
    assert left[-1] == []
    unlink(node, md)
    sim.run_until_quiet()
    assert bytes(pieces[1]) == b"p" * BIG


def test_registrations_are_counted_and_come_back() -> None:
    sim, node, stranger = connected()
    state = node.o2ib.states[node.nid]
    acks = [offered(stranger, node) for _ in range(3)]
    assert len({place(ack)[0] for ack in acks}) == 3
    md = node.core.memory.md_bind(bytearray(BIG))
    asked = asks(node, stranger, md)
    assert remote(node) == [BIG] * 4
    assert state.registrations.count == 4
    for ack in acks:
        stranger.say(O2ibType.PUT_DONE, cookie=ack.sink_cookie)
    stranger.say(O2ibType.GET_DONE, cookie=asked.cookie, status=BIG)
    unlink(node, md)
    sim.run_until_quiet()
    assert not remote(node)
    assert state.registrations.count == 0


def test_memory_that_is_sent_from_again_and_again_stays_registered_for_no_peer() -> None:
    sim, node, stranger = connected()
    device = node.o2ib.states[node.nid].device
    assert isinstance(device, SimDevice)
    md = node.core.memory.md_bind(bytes(BIG))
    _, region = stranger.memory(BIG)
    kept = []
    for _ in range(3):
        node.loop.enter(lambda: node.core.put(md, stranger.nid, PORTAL, 0, ack=False))
        asked = stranger.wait_for(O2ibType.PUT_REQ)
        target = stranger.target(region)
        stranger.say(O2ibType.PUT_ACK, cookie=asked.cookie, sink_cookie=9, target=target, credits=1)
        sim.run(0.1)
        kept.append(list(device.regions))
    assert kept[0] == kept[1] == kept[2] and len(kept[0]) == 1
    writes(stranger, b"!", kept[0][0], device.regions[kept[0][0]].address)
    breaks(sim, stranger)
    unlink(node, md)
    ends(sim, node, stranger)
    assert not device.regions


def of(node: SimNode) -> SimDevice:
    device = node.o2ib.states[node.nid].device
    assert isinstance(device, SimDevice)
    return device


def test_memory_that_is_sent_from_is_registered_for_each_connection_and_goes_with_it() -> None:
    sim, node, stranger = connected()
    honest = another(sim, node)
    device, state = of(node), node.o2ib.states[node.nid]
    md = node.core.memory.md_bind(bytes(BIG))
    for _ in range(3):
        for peer in (stranger, honest):
            put(sim, node, md, peer)
    assert len(device.regions) == 2
    assert len({region.domain for region in device.regions.values()}) == 2
    assert state.registrations.kept == 2 * BIG
    assert stranger.pair is not None
    stranger.pair.close()
    sim.run(0.1)
    assert len(device.regions) == 1 and len(device.domains) == 1
    unlink(node, md)
    assert not device.regions
    assert state.registrations.kept == 0
    sim.run_until_quiet()


def put(sim: Simulation, node: SimNode, md: Md, peer: Stranger) -> None:
    """A PUT from md, which the peer takes."""
    node.loop.enter(lambda: node.core.put(md, peer.nid, PORTAL, 0, ack=False))
    asked = peer.wait_for(O2ibType.PUT_REQ)
    _, region = peer.memory(asked.header.payload_length if asked.header is not None else 0)
    target = peer.target(region)
    peer.say(O2ibType.PUT_ACK, cookie=asked.cookie, sink_cookie=9, target=target, credits=1)
    sim.run(0.1)


@pytest.mark.parametrize(("size", "kept"), [(16 << 20, 16), ((16 << 20) + 1, 0)])
def test_what_stays_registered_has_a_bound(size: int, kept: int) -> None:
    """Beyond it memory is registered for each transfer."""
    sim, node, stranger = connected()
    device, state = of(node), node.o2ib.states[node.nid]
    mds = []
    for number in range(18):
        mds.append(node.attach(PORTAL + 1, number, ignore_bits=0, size=size).md)
        _, region = stranger.memory(BIG)
        fields = {"portal": PORTAL + 1, "match_bits": number, "length": BIG, "wmd": bytes([number]) * 16}
        hdr = header(stranger, node, MsgType.GET, **fields)
        stranger.say_lnet(O2ibType.GET_REQ, hdr, cookie=3, target=stranger.target(region))
        assert stranger.wait_for(O2ibType.GET_DONE).status == BIG
    sim.run_until_quiet()
    assert [region.view.nbytes for region in device.regions.values()] == [size] * kept
    assert state.registrations.kept == kept * size
    for md in mds:
        assert md is not None
        unlink(node, md)
    assert state.registrations.kept == 0 and not device.regions


def test_memory_of_which_too_much_cannot_be_registered_is_for_each_transfer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of a descriptor, once for each connection, may be more than this process may lock."""
    sim, node, stranger = connected()
    device, state = of(node), node.o2ib.states[node.nid]
    register = SimPair.register

    def refuses(self: SimPair, view: memoryview, remote: bool) -> SimRegion:
        if view.nbytes > BIG:
            raise LNetError(errno.ENOMEM, "the limit of locked memory is reached")
        return register(self, view, remote)

    monkeypatch.setattr(SimPair, "register", refuses)
    node.attach(PORTAL + 1)
    for length, status in ((BIG, BIG), (BIG + 1, -errno.ENOMEM)):
        _, region = stranger.memory(BIG)
        hdr = header(stranger, node, MsgType.GET, portal=PORTAL + 1, length=length, wmd=bytes(16))
        target = stranger.target(region, BIG, length - BIG) if length > BIG else stranger.target(region)
        stranger.say_lnet(O2ibType.GET_REQ, hdr, cookie=3, target=target)
        assert stranger.wait_for(O2ibType.GET_DONE).status == status
        sim.run_until_quiet()
        assert not device.regions and not state.registrations.kept


def test_a_call_that_finds_no_domain_is_refused_and_the_next_one_is_not() -> None:
    sim, node, stranger = connected()
    device = of(node)
    device.most_domains = 1
    other = Stranger(sim, "10.0.0.8@o2ib")
    other.call(node)
    assert other.reason is Reason.NO_RESOURCES
    assert any("no protection domain" in line for line in node.reports)
    assert stranger.pair is not None
    stranger.pair.close()
    sim.run_until_quiet()
    assert not device.domains and not device.pairs
    other.call(node)
    node.ping(other.nid)
    sim.run_until_quiet()
    assert len(conns(node)) == 1 and len(device.domains) == 1


def test_a_call_of_ours_that_finds_no_domain_fails_and_the_next_one_does_not() -> None:
    sim, node, stranger = connected()
    device = of(node)
    device.most_domains = 1
    other = Stranger(sim, "10.0.0.8@o2ib")
    refused = node.put(other.nid, PORTAL, data=b"x", ack=False)
    well = node.put(stranger.nid, PORTAL, data=b"x", ack=False)
    sim.run_until_quiet()
    assert refused.status is not None and refused.status < 0 and str(other.nid) in refused.reason
    assert well.ok
    assert not other.calls
    assert len(device.pairs) == len(device.domains) == 1
    device.most_domains = 2
    taken = node.put(other.nid, PORTAL, data=b"x", ack=False)
    sim.run_until_quiet()
    assert taken.ok and len(device.domains) == 2


def test_no_peer_may_read() -> None:
    assert not (abi.ACCESS_REMOTE | abi.ACCESS_LOCAL) & (REMOTE_READ | REMOTE_ATOMIC)

"""Others that send PUTs with the identities of a node, which are its handles that are never taken twice."""

from __future__ import annotations

import errno

import pytest

from control.discovery.test_discovery_hostile import Arriving, attach, put
from control.discovery.test_discovery_takeover import Held
from support.fabric import Fabric
from ulnet.control.instance import LNet
from ulnet.core.event import Event
from ulnet.core.guard.identity import again, identity, tag_of
from ulnet.core.md import MdOption
from ulnet.core.status import LNetError
from ulnet.nid import Nid
from ulnet.wire.lnet import PING_MATCH_BITS, Header, MsgType

A, B, FOE = (Nid.parse(f"10.0.0.{number}@tcp") for number in (1, 2, 66))
BITS = 1


@pytest.fixture
def fabric() -> Fabric:
    return Fabric()


def sent_by(nid: Nid, core: LNet, wmd: bytes, data: bytes, portal: int = 9, bits: int = BITS) -> None:
    """A whole PUT that a connection of nid brings."""
    hdr = Header(int(MsgType.PUT), A, nid, payload_length=len(data), match_bits=bits, portal=portal, wmd=wmd)
    receiver = core.receiver(core.nis[A], nid)
    assert receiver.begin(hdr, Arriving(receiver, data)) == 0


def test_identities_begin_with_what_their_peer_alone_is_told(fabric: Fabric) -> None:
    """All handles of a life began alike: who was pinged by a node could name its next messages to others."""
    a, b = fabric.node(str(A), discovery=True), fabric.node(str(B), discovery=True)
    foe = fabric.node(str(FOE), discovery=True)
    got = attach(a)
    attach(b)
    attach(foe)
    for target in (A, FOE):
        put(b, target)
        fabric.run()
    cookie = b.cookie.to_bytes(8, "little")
    number = b.memory._next_cookie // 4
    for ahead in range(50):
        sent_by(FOE, a, again(identity(cookie, number + ahead, tag_of(a.cookie))), b"", 0, PING_MATCH_BITS)
    got.clear()
    for _ in range(20):
        ended = put(b, A)
        fabric.run()
        assert [(event.kind.name, event.status) for event in ended] == [("SEND", 0), ("ACK", 0)]
    assert len(got) == 20
    prefixes = {peer.prefix for nid in (A, FOE) if (peer := b.peers.find(nid)) is not None}
    assert len(prefixes) == 2
    assert cookie not in prefixes


def test_a_secret_that_is_too_long_is_refused(fabric: Fabric) -> None:
    with pytest.raises(LNetError, match="a secret of 65 bytes: it may have 64 at most") as refused:
        LNet(clock=fabric.clock, cookie=1, secret=bytes(65))
    assert refused.value.errno == errno.EINVAL
    LNet(clock=fabric.clock, cookie=1, secret=bytes(64))


@pytest.mark.parametrize("waits", [False, True])
def test_nobody_else_gets_the_place_of_a_message_that_is_coming(fabric: Fabric, waits: bool) -> None:
    """Bytes of another node went into memory that was open to one peer alone."""
    a = fabric.node(str(A))
    memory, got = bytearray(8), list[Event]()

    def open_to_b() -> None:
        me = a.memory.me_attach(9, match_bits=BITS, nid=B)
        a.memory.md_attach(me, memory, got.append, options=MdOption.OP_PUT)

    if waits:
        a.memory.set_lazy(9)
    else:
        open_to_b()
    wmd = identity(b"prefix!!", 77, tag_of(a.cookie))
    hdr = Header(int(MsgType.PUT), A, B, payload_length=8, match_bits=BITS, portal=9, wmd=wmd)
    receiver = a.receiver(a.nis[A], B)
    held = Held(receiver, b"B" * 8)
    assert receiver.begin(hdr, held) == 0
    sent_by(FOE, a, again(wmd), b"E" * 8)
    if waits:
        open_to_b()
    assert memory == bytes(8)
    assert held.incoming is not None
    receiver.end(held.incoming)
    assert [(event.initiator, event.status) for event in got] == [(B, 0)]
    assert a.stats.drops["sent again, and was taken or may have been"] == 1

"""A peer NI has a queue of its own only once a message has waited there: most never have one."""

from __future__ import annotations

from ulnet.core.msg import Msg
from ulnet.core.peer import Peer, PeerNet, PeerNi
from ulnet.nid import Nid
from ulnet.wire.lnet import Header


def peer_ni(text: str) -> PeerNi:
    nid = Nid.parse(text)
    peer = Peer(nid)
    return PeerNi(nid, PeerNet(nid.net, peer), 8)


def message(nid: Nid) -> Msg:
    return Msg(Header(1, nid, nid, 1, 1, 0))


def test_what_waits_for_one_peer_waits_for_no_other() -> None:
    first, second = peer_ni("10.0.0.1@tcp"), peer_ni("10.0.0.2@tcp")
    assert first.tx_queue is second.tx_queue
    assert not first.tx_queue
    msgs = [message(first.nid), message(first.nid)]
    for msg in msgs:
        first.wait(msg)
    assert list(first.tx_queue) == msgs
    assert not second.tx_queue
    assert not peer_ni("10.0.0.3@tcp").tx_queue


def test_a_queue_that_is_there_stays() -> None:
    one = peer_ni("10.0.0.1@tcp")
    one.wait(message(one.nid))
    queue = one.tx_queue
    queue.popleft()
    one.wait(message(one.nid))
    assert one.tx_queue is queue
    assert len(queue) == 1

"""A NID of this node belongs to no other one: messages to a peer never end at their sender."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from support.fabric import Fabric, Recorder
from support.merging import merge
from ulnet.control.instance import LNet
from ulnet.control.naming import name_peer
from ulnet.core.md import MdOption
from ulnet.core.status import LNetError
from ulnet.nid import Nid
from ulnet.wire.ping import Feature, NiEntry, NiStatus, PingInfo

A, A1 = Nid.parse("10.0.0.1@tcp"), Nid.parse("10.1.0.1@tcp1")
B, B1 = Nid.parse("10.0.0.2@tcp"), Nid.parse("10.1.0.2@tcp1")


def serve(core: LNet) -> Recorder:
    got = Recorder()
    me = core.memory.me_attach(5, match_bits=7)
    options = MdOption.OP_PUT | MdOption.MANAGE_REMOTE | MdOption.TRUNCATE
    core.memory.md_attach(me, bytearray(8), got, options=int(options))
    return got


def all_to(fabric: Fabric, core: LNet, target: Nid, count: int = 8) -> list[int]:
    """The status of each of so many acknowledged PUTs."""
    ends = Recorder()
    for _ in range(count):
        core.put(core.memory.md_bind(b"x", ends, threshold=2), target, 5, 7)
        fabric.run()
    return [event.status for event in ends if event.kind.name == "ACK"]


@pytest.mark.requirement("cfg-080")
@pytest.mark.parametrize(("primary", "nids"), [(B, [A1]), (A1, [B]), (A, []), (A, [A1])], ids=str)
def test_a_peer_with_a_nid_of_this_node_is_refused(primary: Nid, nids: list[Nid]) -> None:
    core = Fabric().node(str(A), str(A1))
    own = next(nid for nid in (primary, *nids) if nid in (A, A1))
    with pytest.raises(LNetError, match=f"{own} is a NID of this node: peer {primary}") as refusal:
        core.peers.add(primary, nids)
    assert refusal.value.errno == errno.EADDRINUSE
    assert len(core.peers) == 0


@pytest.mark.requirement("cfg-080")
def test_a_nid_of_this_node_is_not_added_to_a_configured_peer() -> None:
    core = Fabric().node(str(A), str(A1))
    peer = core.peers.add(B)
    with pytest.raises(LNetError, match=f"{A1} is a NID of this node: peer {B}"):
        core.peers.add(B, [A1])
    assert list(peer.nids()) == [B]


@pytest.mark.requirement("cfg-080")
def test_an_ni_with_a_nid_of_a_configured_peer_is_refused() -> None:
    core = Fabric().node(str(A))
    core.peers.add(B, [A1])
    with pytest.raises(LNetError, match=f"{A1} belongs to the configured peer {B}") as refusal:
        core.add_ni(A1.net, A1)
    assert refusal.value.errno == errno.EADDRINUSE
    assert A1 not in core.nis
    core.peers.delete(B, [A1])
    core.add_ni(A1.net, A1)


def known_as(core: LNet, *nids: Nid) -> None:
    """A peer told these NIDs of itself."""
    pni = core.peers.learn(nids[0])
    assert pni is not None
    pni.peer.mark(1)
    merge(core.peers, pni.peer, nids[0], nids)


@pytest.mark.parametrize("listed", [(B, A1), (A1, B)], ids=str)
def test_a_nid_that_comes_to_this_node_leaves_the_peer_that_was_found_to_have_it(
    listed: tuple[Nid, Nid],
) -> None:
    fabric = Fabric()
    core, other = fabric.node(str(A)), fabric.node(str(B))
    known_as(core, *listed)
    core.add_ni(A1.net, A1)
    ours, theirs = serve(core), serve(other)
    assert all_to(fabric, core, B) == [0] * 8
    assert (len(ours), len(theirs)) == (0, 8)
    assert all_to(fabric, core, A1) == [0] * 8
    assert (len(ours), len(theirs)) == (8, 8)


def test_a_nid_that_leaves_this_node_leaves_what_this_node_knows_of_itself() -> None:
    """The address may be another host's next."""
    fabric = Fabric()
    core = fabric.node(str(A), str(A1))
    known_as(core, A, A1)
    core.del_ni(A1)
    fabric.node(str(A1))
    core.add_ni(A1.net, Nid.parse("10.1.0.9@tcp1"))
    ours, theirs = serve(core), serve(fabric.cores[-1])
    assert all_to(fabric, core, A) == [0] * 8
    assert (len(ours), len(theirs)) == (8, 0)
    assert all_to(fabric, core, A1) == [0] * 8
    assert (len(ours), len(theirs)) == (8, 8)


def naming(core: LNet) -> None:
    with pytest.raises(LNetError, match=f"{A} is a NID of this node: peer {B}") as refusal:
        name_peer(core, [A, B, B1])
    assert refusal.value.errno == errno.EADDRINUSE


def telling(core: LNet) -> None:
    """A stranger lists a NID of this node beside its own, and that one is named."""
    name_peer(core, [A])
    peer = core.peers.learn(B)
    assert peer is not None
    entries = [NiEntry(nid, NiStatus.UP) for nid in (B, A)]
    features = int(Feature.NI_STATUS | Feature.RTE_DISABLED | Feature.MULTI_RAIL | Feature.DISCOVERY)
    peer.peer.mark(1)
    peer.peer.news = PingInfo(features, 12345, 5, entries)
    core.discovery.merging.merge(peer.peer)
    assert list(peer.peer.nids()) == [B]


@pytest.mark.parametrize("mix", [naming, telling])
def test_nobody_mixes_nids_of_this_node_with_those_of_others(mix: Callable[[LNet], None]) -> None:
    fabric = Fabric()
    core = fabric.node(str(A), discovery=True)
    other = fabric.node(str(B), discovery=True)
    mix(core)
    ours, theirs = serve(core), serve(other)
    assert all_to(fabric, core, A) == [0] * 8
    assert (len(ours), len(theirs)) == (8, 0)
    assert all_to(fabric, core, B) == [0] * 8
    assert (len(ours), len(theirs)) == (8, 8)

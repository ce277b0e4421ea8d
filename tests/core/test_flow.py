"""What is under way on a path, and whose answer tells of it."""

from __future__ import annotations

import pytest

from support.fabric import Fabric
from ulnet.core.md import MdOption
from ulnet.nid import Nid


@pytest.mark.parametrize("kind", ["put", "get"])
def test_an_answer_counts_for_the_path_it_came_by_though_one_descriptor_uses_several(kind):
    fabric = Fabric()
    a = fabric.node("10.0.0.1@tcp", "10.1.0.1@tcp1")
    b = fabric.node("10.0.0.2@tcp", "10.1.0.2@tcp1")
    slow, fast = Nid.parse("10.0.0.2@tcp"), Nid.parse("10.1.0.2@tcp1")
    peer = a.peers.add(slow, [fast])
    options = MdOption.OP_PUT | MdOption.OP_GET | MdOption.MANAGE_REMOTE
    b.memory.md_attach(b.memory.me_attach(5, match_bits=7), bytearray(1000), None, options=options)
    md = a.memory.md_bind(bytearray(1000), None)
    for _ in range(2):
        getattr(a, kind)(md, slow, 5, 7)
    held = [sent for sent in fabric.wire if sent[1].next_nid == slow]
    for sent in held:  # the slow path keeps what it was given
        fabric.wire.remove(sent)
    fabric.run()
    outstanding = {str(ni.nid): path_load.outstanding for ni, path_load in peer.path_loads.items()}
    assert outstanding["10.1.0.1@tcp1"] == 0
    assert outstanding["10.0.0.1@tcp"] > 1000
    fabric.wire.extend(held)
    fabric.run()
    assert all(path_load.outstanding == 0 for path_load in peer.path_loads.values())
    a.memory.md_unlink(md)
    fabric.assert_conserved()

"""Peers from files, whatever their order and overlap: lists become the peers, and nothing is half done."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.examples import examples
from ulnet.dlc import model
from ulnet.dlc.errors import DlcError
from ulnet.node import Node
from ulnet.node.admin import Admin

NIDS = [f"10.0.{net}.{host}@tcp{net}" for net in range(1, 4) for host in range(1, 4)]
WRONG = ["banana@x", "0@lo", "10.0.1.[1-2]@tcp1"]
nids = st.lists(st.sampled_from([*NIDS, *WRONG]), max_size=5)
requests = st.one_of(
    st.builds(
        model.PeerRefresh,
        nids,
        st.one_of(st.none(), st.sampled_from([*NIDS, "banana"])),
        st.sampled_from([None, True, False]),
        st.booleans(),
    ),
    st.builds(model.PeerRemove, nids, st.one_of(st.none(), st.sampled_from(NIDS))),
    st.builds(model.PeerAdd, st.sampled_from(NIDS), nids, st.booleans()),
    st.builds(model.PeerDel, st.sampled_from(NIDS), nids, st.booleans()),
)


def table(node: Node) -> dict[str, tuple[bool, list[str]]]:
    return {
        str(peer.primary_nid): (peer.multi_rail, [str(nid) for nid in peer.nids()])
        for peer in node.core.peers
        if str(peer.primary_nid) != "0@lo"
    }


async def run(steps: list[model.Request]) -> None:
    async with Node(drivers=lambda core: []) as node:
        admin = Admin(node, host=list)
        for step in steps:
            before = table(node)
            try:
                answer = await admin.handle(step)
            except DlcError:
                assert table(node) == before, step
                continue
            after = table(node)
            owners: dict[str, str] = {}
            for primary, (multi_rail, listed) in after.items():
                assert listed[0] == primary
                assert len(set(listed)) == len(listed)
                assert all(owners.setdefault(nid, primary) == primary for nid in listed)
                if not multi_rail:
                    nets = [nid.partition("@")[2] for nid in listed]
                    assert len(set(nets)) == len(nets)
            if isinstance(step, model.PeerRefresh):
                check_refreshed(step, after, answer.errors)


def check_refreshed(step: Any, after: dict[str, tuple[bool, list[str]]], errors: list[Any]) -> None:
    """The peer has the good ones of the list and nothing else; each bad one was told."""
    places = [int(item.descr.partition(":")[0].removeprefix("NID ")) for item in errors]
    assert places == sorted(places)
    told = {step.nids[place] for place in places}
    asked = [text for text in step.nids if text not in told and "[" not in text]
    named = step.primary or (asked[0] if asked else None)
    if named is None or any(f" {named} " in item.descr for item in errors):  # that a range before it held
        return
    (has,) = [listed for _, listed in after.values() if named in listed]
    allowed = {*asked, *([step.primary] if step.primary else [])}
    if any("[" in text for text in step.nids):
        allowed |= {"10.0.1.1@tcp1", "10.0.1.2@tcp1"}
    assert set(has) <= allowed
    if not told:
        assert set(asked) <= set(has)


@pytest.mark.requirement("HLD-import", "snd-065")
@settings(max_examples=examples(200), deadline=None)
@given(st.lists(requests, min_size=1, max_size=8))
def test_any_order_of_peers_in_files_keeps_the_table_whole(steps: list[model.Request]) -> None:
    asyncio.run(run(steps))

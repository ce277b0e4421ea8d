"""The sections `peer:` and `peers:` of configuration files (spec lnetctl.md §4; Multi-Rail design)."""

from __future__ import annotations

from collections.abc import Iterator

from ulnet.dlc.config_net import COUNTERS, SHOWN
from ulnet.dlc.model import PeerAdd, PeerDel, PeerRefresh, PeerRemove, PeerShow, Request
from ulnet.dlc.schema import Schema
from ulnet.dlc.steps import Step, Verb
from ulnet.dlc.yaml_in import MapNode, Node, ScalarNode, SeqNode

__all__ = ["CONFIGURED", "LOCKED", "numbered_nids", "read_peers", "read_peers_by_nids"]

LOCKED = 0x100000  # in `peer state`: only force changes the primary NID
CONFIGURED = 0x8
_PEER_NI_STATE = (
    *(*COUNTERS, "state", "refcount", "max_ni_tx_credits", "available_tx_credits", "min_tx_credits"),
    *("tx_q_num_of_buf", "available_rtr_credits", "min_rtr_credits"),
)


def read_peers(schema: Schema, node: Node, verb: Verb) -> Iterator[Step]:
    """Today's form. With `peer ni` the list is the peer's NIDs; without, it says nothing of them.

    A full export has learned peers too, as their `peer state` tells: they are not configured.
    """
    for item in schema.items(node, "peer"):
        mark = schema.mark()
        names = ("primary nid", "Multi-Rail", "peer ni", "seq_no", "peer state")
        fields = schema.fields(item, "peer", names, ("differences",))
        primary = schema.text(fields, "primary nid", item, required=True)
        multi_rail = schema.boolean(fields, "Multi-Rail", True)
        state = schema.integer(fields, "peer state")
        locked = bool((state or 0) & LOCKED)
        learned = state is not None and state != LOCKED and not state & CONFIGURED
        nids = _peer_nis(schema, fields["peer ni"]) if "peer ni" in fields else None
        seq_no = schema.integer(fields, "seq_no")
        learned = learned or primary == "0@lo"  # 2.15 has its own loopback among its peers
        if primary is None or not schema.good(mark) or (learned and verb == "add"):
            continue
        request: Request
        if verb == "show":
            request = PeerShow([primary], SHOWN)
        elif nids is None:
            request = (
                PeerDel(primary) if verb == "del" else PeerAdd(primary, [], multi_rail, lock_primary=locked)
            )
        elif verb == "del":
            request = PeerRemove(nids, primary)
        else:
            request = PeerRefresh(nids, primary, multi_rail, locked)
        yield Step(request, item.line, seq_no)


def _peer_nis(schema: Schema, node: Node) -> list[str]:
    nids = []
    for ni in schema.items(node, "peer ni"):
        nid = schema.text(schema.fields(ni, "a peer ni", ("nid",), _PEER_NI_STATE), "nid", ni, required=True)
        if nid is not None:
            nids.append(nid)
    return nids


def read_peers_by_nids(schema: Schema, node: Node, verb: Verb) -> Iterator[Step]:
    """The design document's form: `nids` by number, any of which names the peer."""
    for item in schema.items(node, "peers"):
        mark = schema.mark()
        fields = schema.fields(item, "peers", ("nids", "Multi-Rail", "seq_no"))
        seq_no = schema.integer(fields, "seq_no")
        given = schema.boolean(fields, "Multi-Rail", True)
        multi_rail = given if "Multi-Rail" in fields else None
        nids = numbered_nids(schema, fields.get("nids"), item)
        if not nids or not schema.good(mark):
            continue
        request: Request
        if verb == "show":
            request = PeerShow(nids, SHOWN)
        elif verb == "del":
            request = PeerRemove(nids)
        else:
            request = PeerRefresh(nids, multi_rail=multi_rail)
        yield Step(request, item.line, seq_no)


def numbered_nids(schema: Schema, node: Node | None, item: MapNode) -> list[str]:
    """The NIDs of `nids`, by number or as a list."""
    if isinstance(node, MapNode):
        values = [value for _, value in node.items]
    elif isinstance(node, SeqNode):
        values = list(node.items)
    else:
        values = []
    nids = [value.text for value in values if isinstance(value, ScalarNode) and value.text]
    if not nids or len(nids) != len(values):
        schema.refuse(item.line, "no value for 'nids': write 'nids:' and below it '0: 10.0.0.2@tcp'")
    return nids

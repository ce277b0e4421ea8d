"""Sums, heat and rates as they are answered; the real tool has none of these."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from ulnet.dlc.documents import MsgCounts

__all__ = ["SumView", "SumsDocument", "UseDocument", "UseView"]


class SumView(Struct, rename={"primary_nid": "primary nid"}):
    """Of a net or a peer: how many NIs it has, and their counters added up."""

    nis: int
    send_count: int
    recv_count: int
    drop_count: int
    send_length: int
    recv_length: int
    sent_stats: MsgCounts
    received_stats: MsgCounts
    dropped_stats: MsgCounts
    net: str | UnsetType = UNSET
    primary_nid: str | UnsetType = UNSET


class SumsDocument(Struct):
    """`stats nets`, `stats peers`."""

    sums: list[SumView]


class UseView(Struct):
    """`heat`: messages, of which those of a minute ago count half; `rate`: messages per second since the last
    time that this was asked; `bytes_per_second`: what its paths were last seen to deliver, 0: not known.
    """

    nid: str
    heat: float
    rate: float
    bytes_per_second: int


class UseDocument(Struct):
    """`stats heat`."""

    use: list[UseView]

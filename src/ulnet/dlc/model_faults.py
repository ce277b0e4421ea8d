"""Requests about fault rules (spec net-fault.md §1)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ulnet.dlc.request import BaseRequest

__all__ = ["FaultAdd", "FaultDel", "FaultReset", "FaultShow"]

_Kind = Literal["drop", "delay"]
_Natural = Annotated[int, msgspec.Meta(ge=0, le=0xFFFFFFFF)]


class FaultAdd(BaseRequest, tag="fault.add"):
    """A rule that drops or delays messages. NIDs may be `*`, or `*@net`; no portals or messages are all.

    `rate` strikes one message of so many, `interval` one in so many seconds; `latency` is in seconds.
    `health_errors` are names of statuses, or `random`: messages fail so when they are sent.
    """

    verb = "add"
    entity = "fault"
    kind: _Kind
    source: str
    dest: str
    local_nid: str | None = None
    rate: _Natural = 0
    interval: _Natural = 0
    latency: float = 0
    portals: list[int] = []
    messages: list[str] = []
    health_errors: list[str] = []
    random: bool = False
    drop_all: bool = False


class FaultDel(BaseRequest, tag="fault.del"):
    """Delete the rules with that source and destination; None and `*` are any."""

    verb = "del"
    entity = "fault"
    kind: _Kind
    source: str | None = None
    dest: str | None = None


class FaultReset(BaseRequest, tag="fault.reset"):
    """Zero the counters of all rules of a kind."""

    verb = "reset"
    entity = "fault"
    kind: _Kind


class FaultShow(BaseRequest, tag="fault.show"):
    """The rules of a kind, the newest first, with their counters."""

    verb = "show"
    entity = "fault"
    kind: _Kind

"""What all requests to a node have in common."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

__all__ = ["BaseRequest", "Seconds", "Tunables", "Verbosity"]

Verbosity = Annotated[int, msgspec.Meta(ge=0, le=4)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]


class BaseRequest(msgspec.Struct, tag_field="op", forbid_unknown_fields=True, omit_defaults=True):
    """`verb` and `entity` are how lnetctl files errors of this request."""

    verb: ClassVar[str] = ""
    entity: ClassVar[str] = ""


class Tunables(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """Of a net and its driver (`ulnet.dlc.tunables`); None and -1 are the default."""

    peer_timeout: int | None = None
    peer_credits: int | None = None
    peer_buffer_credits: int | None = None
    credits: int | None = None
    conns_per_peer: int | None = None
    timeout: int | None = None
    tos: int | None = None

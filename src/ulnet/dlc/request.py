"""What all requests to a node have in common."""

from __future__ import annotations

from typing import Annotated, ClassVar, TypeAlias

import msgspec

__all__ = ["BaseRequest", "Seconds", "Tunables", "Verbosity"]

Verbosity = Annotated[int, msgspec.Meta(ge=0, le=4)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]
Tunables: TypeAlias = dict[str, int]  # those given of `ulnet.dlc.tunables`; -1 is the default


class BaseRequest(msgspec.Struct, tag_field="op", forbid_unknown_fields=True, omit_defaults=True):
    """`verb` and `entity` are how lnetctl files errors of this request."""

    verb: ClassVar[str] = ""
    entity: ClassVar[str] = ""

    @property
    def looks(self) -> bool:
        """Whether this one changes nothing, though others of its type do: it is no line of the audit log."""
        return False

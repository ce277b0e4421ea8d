"""Requests about access lists (docs/security.md)."""

from __future__ import annotations

from ulnet.dlc.request import BaseRequest

__all__ = ["AccessAdd", "AccessDel", "AccessShow"]


class AccessAdd(BaseRequest, tag="access.add"):
    """Add rules `[WHAT=]WHO` to the access lists, all or none; those that are there stay as they are."""

    verb = "add"
    entity = "access"
    allow: list[str] = []
    deny: list[str] = []


class AccessDel(BaseRequest, tag="access.del"):
    """Delete rules of the access lists, all that are named or none; or each of both lists."""

    verb = "del"
    entity = "access"
    allow: list[str] = []
    deny: list[str] = []
    all: bool = False


class AccessShow(BaseRequest, tag="access.show"):
    """The access lists."""

    verb = "show"
    entity = "access"

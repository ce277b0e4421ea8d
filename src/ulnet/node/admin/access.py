"""`access add`, `access del`, `access show` (docs/security.md)."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from msgspec import UNSET, UnsetType

from ulnet.control.access import access_of, with_rules, without
from ulnet.control.instance import LNet
from ulnet.control.view import View
from ulnet.core.access import EVERYBODY
from ulnet.core.status import LNetError
from ulnet.dlc.documents_access import AccessView
from ulnet.dlc.model import AccessAdd, AccessDel, AccessShow
from ulnet.dlc.protocol import Answer
from ulnet.nid.errors import shown

__all__ = ["add_access", "delete_access", "show_access"]


def add_access(core: LNet, request: AccessAdd) -> Answer:
    """Add rules, all or none. Raises LNetError: EINVAL, ENOSPC.

    The answer notes which interfaces they name that no NI has: nothing comes by these.
    """
    if not (request.allow or request.deny):
        raise LNetError(errno.EINVAL, "no rule is named: give one with --allow or --deny")
    given = access_of(request.allow, request.deny)
    core.set_access(with_rules(core.access, request.allow, request.deny))
    here = {ni.interface for ni in core.nis.values()}
    here |= {place.interface for ni in core.nis.values() for place in ni.also}
    return Answer(notes=[f"no NI here is on {shown(name)} now" for name in sorted(given.interfaces() - here)])


def delete_access(core: LNet, request: AccessDel) -> Answer:
    """Delete rules, all that are named or none. Raises LNetError: EINVAL, ENOENT.

    The answer notes what is open to everybody now, since the last rule went that allowed somebody to do it.
    """
    named = bool(request.allow or request.deny)
    if named == request.all:
        raise LNetError(errno.EINVAL, "name rules with --allow and --deny, or take --all of them")
    before = core.access
    core.set_access(EVERYBODY if request.all else without(before, request.allow, request.deny))
    opened = before.opened_by(core.access)
    if not opened:
        return Answer()
    return Answer(notes=[f"who is not denied may {', '.join(opened)} now: no rule allows it to some alone"])


def show_access(core: View, request: AccessShow | None = None) -> AccessView:
    """Both lists."""
    return AccessView(_shown(core.access.allow), _shown(core.access.deny))


def _shown(rules: Sequence[str]) -> list[str] | UnsetType:
    return list(rules) if rules else UNSET

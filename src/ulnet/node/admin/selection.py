"""`selection net|nid|peer add|del|show`: the documents' commands, onto the same rules (spec udsp.md §7).

A rule of the documents for a net or NIDs is about local and remote ones: two rules of today's list with one
number, which is its ID. Where the two come to differ, each has an ID. What `udsp` made is shown and deleted
here, too.
"""

from __future__ import annotations

import errno

from ulnet.control.instance import LNet
from ulnet.control.policy import Descriptor, Effect, Key, Rule
from ulnet.control.view import View
from ulnet.core.status import LNetError
from ulnet.dlc.documents_policy import SelectionView
from ulnet.dlc.model import SelectionAdd, SelectionDel, SelectionShow
from ulnet.nid import NidError

__all__ = ["add_selection", "delete_selection", "show_selection"]

_KINDS = {
    Effect.LOCAL_NET: "net",
    Effect.PEER_NET: "net",
    Effect.LOCAL_NI: "nid",
    Effect.PEER_NI: "nid",
    Effect.PATHWAY: "peer",
}


def add_selection(core: LNet, request: SelectionAdd) -> None:
    """Add a rule, or change its priority and weight. All or none: LNetError(EINVAL, EALREADY, ENOSPC)."""
    keys = _keys(request)
    if keys is None:
        names = "--local and --remote" if request.kind == "peer" else f"--{request.kind}"
        raise LNetError(errno.EINVAL, f"a {request.kind} rule needs what it is about: give {names}")
    if len(keys) == 2 and request.side != "both":
        keys = keys[:1] if request.side == "local" else keys[1:]
    rules, priority, weight = core.policies.rules, request.priority, request.weight
    there = {key: rules.find(key) for key in keys}
    rules.check_room(sum(old is None for old in there.values()))
    wanted = [key for key, old in there.items() if old is None or rules.would_change(old, priority, weight)]
    for src, dst, rte in wanted or keys:
        core.policies.add(src=src, dst=dst, rte=rte, priority=priority, weight=weight)


def delete_selection(core: LNet, request: SelectionDel) -> None:
    """Delete what an ID and a pattern name, or one of them. Raises LNetError(EINVAL, ENOENT)."""
    keys = _keys(request)
    if keys is None and request.id is None:
        raise LNetError(errno.EINVAL, f"no {request.kind} rule is named: give its pattern or its --id")
    chosen: list[Rule] = []
    if request.id is not None:
        chosen = [rule for rule in _of_kind(core, request.kind) if rule.number == request.id]
        _must_be(chosen, f"the id {request.id}", request.kind)
    if keys is not None:
        by_match = [rule for rule in core.policies.rules if rule.key in keys]
        what = " to ".join(str(one) for one in keys[0] if one is not None)
        _must_be(by_match, f"the pattern {what}", request.kind)
        if request.side != "both" and request.kind != "peer":
            by_match = [rule for rule in by_match if (rule.src is not None) == (request.side == "local")]
            _must_be(by_match, f"the pattern {what} on the {request.side} side", request.kind)
        if request.id is not None:
            by_match = [rule for rule in by_match if rule.number == request.id]
        if not by_match:
            raise LNetError(
                errno.EINVAL,
                f"the id {request.id} is that of the rule for {chosen[0]}, not of the one for {what}: "
                "give one of them, or both of one rule",
            )
        chosen = by_match
    core.policies.remove(chosen)


def _must_be(found: list[Rule], what: str, kind: str) -> None:
    if not found:
        raise LNetError(errno.ENOENT, f"no {kind} rule has {what}: see 'lnetctl selection {kind} show'")


def show_selection(core: View, request: SelectionShow) -> list[SelectionView]:
    """The rules of a kind, or those with these patterns. Raises LNetError(EINVAL)."""
    local = _read(request, request.local if request.kind == "peer" else request.net or request.nid)
    remote = _read(request, request.remote)
    views: list[SelectionView] = []
    shown: set[tuple[int, int | None, int | None]] = set()
    for rule in _of_kind(core, request.kind):
        if request.kind == "peer":
            wanted = _passes(local, rule.src) and _passes(remote, rule.dst)
        else:
            wanted = _passes(local, rule.src or rule.dst)
        alike = rule.number, rule.priority, rule.weight
        if wanted and alike not in shown:
            shown.add(alike)
            views.append(_view(core, rule))
    return views


def _view(core: View, rule: Rule) -> SelectionView:
    kind = _KINDS[rule.effect]
    view = SelectionView(kind, rule.number)
    if kind == "peer":
        view.local, view.remote = str(rule.src), str(rule.dst)
    else:
        setattr(view, kind, str(rule.src or rule.dst))
        twin = core.policies.rules.find((rule.dst, rule.src, None))
        if twin is None or (twin.priority, twin.weight) != (rule.priority, rule.weight):
            view.side = "local" if rule.src is not None else "remote"
    if rule.priority is not None:
        view.priority = rule.priority
    if rule.weight is not None:
        view.weight = rule.weight
    return view


def _passes(asked: Descriptor | None, has: Descriptor | None) -> bool:
    return asked is None or (has is not None and has.covers(asked))


def _of_kind(core: View, kind: str) -> list[Rule]:
    return [rule for rule in core.policies.rules if _KINDS.get(rule.effect) == kind]


def _keys(request: SelectionAdd | SelectionDel) -> list[Key] | None:
    """What rules of today's list match by; None if the request names no pattern."""
    if request.kind == "peer":
        local, remote = _read(request, request.local), _read(request, request.remote)
        if (local is None) != (remote is None):
            raise LNetError(errno.EINVAL, "a peer rule has two sides: give both --local and --remote")
        return None if local is None else [(local, remote, None)]
    one = _read(request, request.net if request.kind == "net" else request.nid)
    return None if one is None else [(one, None, None), (None, one, None)]


def _read(request: SelectionAdd | SelectionDel | SelectionShow, text: str | None) -> Descriptor | None:
    if text is None:
        return None
    try:
        one = Descriptor.parse(text)
    except NidError as bad:
        raise LNetError(errno.EINVAL, str(bad)) from None
    if one.is_net != (request.kind == "net"):
        wanted = "a net, such as tcp1" if request.kind == "net" else "NIDs, such as 10.0.0.*@tcp1"
        raise LNetError(errno.EINVAL, f"{text}: a {request.kind} rule is about {wanted}")
    return one

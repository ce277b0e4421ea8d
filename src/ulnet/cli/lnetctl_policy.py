"""lnetctl's words for selection policies: `udsp`, and the documents' `selection` (spec udsp.md §6, §7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, cast

from ulnet.cli.lnetctl_options import BadValue, Parsed
from ulnet.dlc import model

__all__ = ["POLICY_BUILDERS", "SaidPlainly"]

_Side = Literal["both", "local", "remote"]


class SaidPlainly(Exception):
    """What the real tool says on stdout and without YAML."""


def _udsp_add(parsed: Parsed) -> model.Request:
    src, dst, rte = (parsed.text(name) for name in ("src", "dst", "rte"))
    if src is None and dst is None and rte is None:
        from ulnet.cli.lnetctl_help import command_help

        raise SaidPlainly(command_help("udsp", "add"))
    return model.UdspAdd(
        *(src, dst, rte),
        priority=_natural(parsed, "priority", "priority"),
        weight=_natural(parsed, "weight", "weight"),
        idx=_natural(parsed, "idx", "index"),
    )


def _udsp_del(parsed: Parsed) -> model.Request:
    idx = _natural(parsed, "idx", "index")
    if (idx is None) != parsed.flag("all"):
        raise SaidPlainly("Must specify --idx or --all\n")
    return model.UdspDel(idx, all=parsed.flag("all"))


def _udsp_show(parsed: Parsed) -> model.Request:
    level = parsed.level("verbose")
    return model.UdspShow(_natural(parsed, "idx", "index"), verbosity=level)


def _natural(parsed: Parsed, name: str, what: str) -> int | None:
    try:
        number = parsed.number(name)
    except BadValue:
        number = -1
    if number is not None and number < 0:
        raise SaidPlainly(f'Invalid {what} "{parsed.text(name)}"\n')
    return number


def _selection(action: str, kind: str) -> Callable[[Parsed], model.Request]:
    request_type: Any = {
        "add": model.SelectionAdd,
        "del": model.SelectionDel,
        "show": model.SelectionShow,
    }[action]

    def build(parsed: Parsed) -> model.Request:
        more: dict[str, object] = {}
        if action == "add":
            more = {
                "priority": parsed.number("priority"),
                "weight": parsed.number("weight"),
                "side": _side(parsed),
            }
        elif action == "del":
            more = {"id": parsed.number("id")}
        names = {name: parsed.text(name) for name in ("net", "nid", "local", "remote")}
        return cast(model.Request, request_type(kind=kind, **names, **more))

    return build


def _side(parsed: Parsed) -> _Side:
    text = parsed.text("side") or "both"
    if text not in ("both", "local", "remote"):
        raise BadValue(f"--side {text!r} is no side: write local, remote or both")
    return cast(_Side, text)


POLICY_BUILDERS: dict[str, Callable[[Parsed], model.Request]] = {
    "udsp_add": _udsp_add,
    "udsp_del": _udsp_del,
    "udsp_show": _udsp_show,
    **{
        f"selection_{kind}_{action}": _selection(action, kind)
        for kind in ("net", "nid", "peer")
        for action in ("add", "del", "show")
    },
}

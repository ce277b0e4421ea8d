"""lnetctl's words for fault rules: words become a request (spec net-fault.md §1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from ulnet.cli.lnetctl_options import BadValue, Parsed, UsageError, number
from ulnet.dlc import model

__all__ = ["FAULT_BUILDERS", "added"]

_Kind = Literal["drop", "delay"]


def _add(kind: _Kind) -> Callable[[Parsed], model.Request]:
    def build(parsed: Parsed) -> model.Request:
        rate, interval = parsed.number("rate") or 0, parsed.number("interval") or 0
        latency = parsed.seconds("latency") or 0
        portals = [number("--portal", text) for text in _list(parsed, "portal")]
        if bool(rate) == bool(interval):
            raise UsageError(f"please provide either {kind} rate or interval but not both at the same time.")
        if not (0 <= rate <= 0xFFFFFFFF and 0 <= interval <= 0xFFFFFFFF):
            raise BadValue(f"rate {rate}, interval {interval}: use 1 to {0xFFFFFFFF}")
        source, dest = parsed.text("source"), parsed.text("dest")
        if source is None or dest is None:
            raise UsageError("please provide both --source and --dest: a NID, * for any, or *@net.")
        return model.FaultAdd(
            kind=kind,
            source=source,
            dest=dest,
            local_nid=parsed.text("local_nid"),
            rate=rate,
            interval=interval,
            latency=latency,
            portals=portals,
            messages=_list(parsed, "message"),
            health_errors=_list(parsed, "health_error"),
            random=parsed.flag("random"),
            drop_all=parsed.flag("drop_all"),
        )

    return build


def _del(kind: _Kind) -> Callable[[Parsed], model.Request]:
    def build(parsed: Parsed) -> model.Request:
        source, dest = parsed.text("source"), parsed.text("dest")
        named = source is not None or dest is not None
        if parsed.flag("all") and named:
            raise UsageError("please provide either --all, or --source and --dest.")
        if not parsed.flag("all") and not named:
            text = f"--all for all {kind} rules, or --source and --dest: a NID, * for any, or *@net."
            raise UsageError(f"please provide {text}")
        return model.FaultDel(kind, source, dest)

    return build


def _list(parsed: Parsed, name: str) -> list[str]:
    text = parsed.text(name)
    return [] if text is None else [item.strip() for item in text.split(",")]


def added(request: model.Request) -> str:
    """What lctl says after it added a rule."""
    assert isinstance(request, model.FaultAdd)
    one_in = f"{request.rate}" if request.rate else f"{request.interval}s"
    return f"Added {request.kind} rule {request.source}->{request.dest} (1/{one_in})\n"


def _builders(kind: _Kind) -> dict[str, Callable[[Parsed], model.Request]]:
    one = {
        f"{kind}_add": _add(kind),
        f"{kind}_del": _del(kind),
        f"{kind}_reset": lambda parsed: model.FaultReset(kind),
        f"{kind}_show": lambda parsed: model.FaultShow(kind),
    }
    return {f"{before}_{name}": build for name, build in one.items() for before in ("fault", "lctl")}


FAULT_BUILDERS = {**_builders("drop"), **_builders("delay")}

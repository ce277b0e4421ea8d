"""Commands that are worth a try for a rail, by what is wrong with it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from ulnet.observe.live import Rail

__all__ = ["Command", "advice"]


class Command(NamedTuple):
    """A command line, and what it tells or does."""

    line: str
    why: str


def advice(rail: Rail, peers: Sequence[str], reach: str = "lnetctl") -> list[Command]:
    """The most telling first; `peers` are NIDs that the rail reaches, `reach` is the node's lnetctl."""
    words = shlex.split(reach)
    at = next((n for n, word in enumerate(words) if word.endswith("lnetctl")), 0)
    host = shlex.join(words[:at])
    found: list[Command] = []

    def on_host(line: str, why: str) -> None:
        found.append(Command(f"{host} {line}" if host else line, why))

    def lnetctl(line: str, why: str) -> None:
        found.append(Command(f"{reach} {line}", why))

    device = rail.interface.partition(",")[0]
    if rail.state in ("down", "unwell") and device:
        on_host(f"ip -s link show dev {shlex.quote(device)}", "its link, and what its device counted")
        on_host(f"ethtool {shlex.quote(device)}", "speed, and whether a cable is there")
    if rail.state == "drained":
        lnetctl(f"net set --nid {rail.nid} --drain 0", "use it again")
    if rail.health is not None and rail.health < 1000:
        lnetctl("debug recovery --local", "which NIs are pinged until they are well")
        if rail.up:
            lnetctl(f"net set --nid {rail.nid} --health 1000", "once it is mended: use it again at once")
    lnetctl(f"net show -v 4 --net {rail.net}", "failures by kind, credits, tunables")
    for peer in peers[:2]:
        lnetctl(f"ping --source {rail.nid} {peer}", "whether that peer answers over this rail")
    return found

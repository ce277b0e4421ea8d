"""Tunables of a request against their rules (spec lnetctl.md §2)."""

from __future__ import annotations

import errno
from dataclasses import asdict

from ulnet.core.status import LNetError
from ulnet.core.tunables import DEFAULT_TIMEOUT, LndTunables, NetTunables
from ulnet.dlc.request import Tunables
from ulnet.dlc.tunables import TUNABLES
from ulnet.lnd.tcp.params import conns_for_speed

__all__ = ["live_tunables", "lnd_tunables", "net_tunables"]


def net_tunables(given: Tunables) -> NetTunables:
    """A net's tunables; -1 and, for credits, 0 stand for the default. Raises LNetError(EINVAL)."""
    default = NetTunables()
    credits = _checked("credits", given) or default.credits
    peer_credits = _checked("peer_credits", given) or default.peer_credits
    timeout = _checked("peer_timeout", given)
    return NetTunables(
        peer_timeout=default.peer_timeout if timeout is None else timeout,
        peer_credits=min(peer_credits, credits),  # as kernel nodes do
        peer_buffer_credits=_checked("peer_buffer_credits", given) or 0,
        credits=credits,
    )


def lnd_tunables(given: Tunables, speed_mbps: int | None) -> LndTunables:
    """A tcp NI's tunables; conns_per_peer 0 is what suits the interface's speed. Raises LNetError(EINVAL)."""
    default = LndTunables()
    tos = _checked("tos", given)
    timeout = _checked("timeout", given)
    if timeout == DEFAULT_TIMEOUT:  # as exports have it where nobody has set it, those of kernel nodes, too
        timeout = None
    return LndTunables(
        conns_per_peer=_checked("conns_per_peer", given) or conns_for_speed(speed_mbps),
        timeout=timeout or default.timeout,
        tos=default.tos if tos is None else tos,
    )


def live_tunables(given: Tunables) -> dict[str, int]:
    """What is given of the tunables that an NI changes while it runs. Raises LNetError(EINVAL)."""
    values = {**asdict(net_tunables(given)), **asdict(lnd_tunables(given, None))}
    names = [name for name in Tunables.__struct_fields__ if getattr(given, name) is not None]
    fixed = [name for name in names if not TUNABLES[name].live]
    if fixed:
        raise LNetError(
            errno.EINVAL, f"{fixed[0]} of a net is that of its first NI: delete the net and add it anew"
        )
    return {name: values[name] for name in names}


def _checked(name: str, given: Tunables) -> int | None:
    """The value, None for "the default"."""
    value, most = getattr(given, name), TUNABLES[name].most
    if value is None or value == -1:
        return None
    if not 0 <= value <= most:
        text = f"{name} {value} is out of range: use 0 to {most}, or -1 for the default"
        raise LNetError(errno.EINVAL, text)
    return int(value)

"""Tunables of a request against their rules (spec lnetctl.md §2)."""

from __future__ import annotations

import errno
from dataclasses import asdict

from ulnet.core.status import LNetError
from ulnet.core.tunables import LndTunables, NetTunables
from ulnet.dlc.request import Tunables
from ulnet.dlc.tunables import DEFAULT, TUNABLES
from ulnet.nid import NetType

__all__ = ["live_tunables", "lnd_tunables", "net_tunables"]


def net_tunables(given: Tunables) -> NetTunables:
    """A net's tunables. Raises LNetError(EINVAL)."""
    found = NetTunables(**_set(given, driver=False))
    found.peer_credits = min(found.peer_credits, found.credits)  # as kernel nodes do
    return found


def lnd_tunables(given: Tunables, conns: int, kind: int) -> LndTunables:
    """An NI's tunables on a net of that type; `conns` are the connections that suit its interface.

    What nets of the type do not have is passed over, as kernel nodes do, unless it is security.
    Raises LNetError(EINVAL).
    """
    found = _set(given, driver=True)
    alien = next((name for name in found if TUNABLES[name].own and kind not in TUNABLES[name].nets), None)
    if alien is not None:
        text = f"tcp nets alone have {alien}: leave it out, or use off"
        raise LNetError(errno.EINVAL, text)
    of_net = {name: value for name, value in found.items() if TUNABLES[name].is_of(kind)}
    return LndTunables(**({"conns_per_peer": conns if kind == NetType.TCP else 1} | of_net))


def live_tunables(given: Tunables) -> dict[str, int]:
    """What is given of the tunables that an NI changes while it runs. Raises LNetError(EINVAL)."""
    values = {**asdict(net_tunables(given)), **asdict(lnd_tunables(given, 0, NetType.TCP))}
    fixed = [name for name in given if not TUNABLES[name].live]
    if fixed:
        raise LNetError(
            errno.EINVAL, f"{fixed[0]} of a net is that of its first NI: delete the net and add it anew"
        )
    return {name: values[name] for name in given}


def _set(given: Tunables, driver: bool) -> dict[str, int]:
    """Those that are not the default; a default that is written counts as none, as exports have it."""
    found = {}
    for name, value in given.items():
        one = TUNABLES.get(name)
        if one is None:
            raise LNetError(errno.EINVAL, f"{name!r} is no tunable of an NI: known are {', '.join(TUNABLES)}")
        if value != DEFAULT and not 0 <= value <= one.most:
            text = f"{name} {value} is out of range: use 0 to {one.most}, or -1 for the default"
            raise LNetError(errno.EINVAL, text)
        if one.driver is driver and value not in (DEFAULT, one.default) and not (one.zero and value == 0):
            found[name] = value
    return found

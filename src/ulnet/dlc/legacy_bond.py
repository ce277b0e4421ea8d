"""Bonding in module parameters: `bond0(*@tcp0, *@tcp1, mode=loadbalance, bds=10.0.0.9@tcp,10.0.0.8@tcp)`.

Slaves come first. What follows a list option (`bds=`, `weights=`) without a name of its own belongs to it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ulnet.dlc.model_bond import BondAdd, BondOptions
from ulnet.nid import Net, NidError

__all__ = ["BondSpecError", "bond_from_words", "is_bond"]

_OPTION = re.compile(r"\s*([A-Za-z_]+)\s*=")
_LISTS = ("bds", "weights")
_TEXTS = ("mode", "policy", "failback")


class BondSpecError(ValueError):
    """One sentence that names the part, the rule and the way out."""


def is_bond(net: str) -> bool:
    """Whether a net's text names a bonding net."""
    return net.startswith("bond")


def bond_from_words(net: str, words: Sequence[str]) -> BondAdd:
    """The request that the parts in brackets mean. Raises BondSpecError."""
    try:
        name = str(Net.parse(net))
    except NidError as bad:
        raise BondSpecError(str(bad)) from None
    slaves: list[str] = []
    values: dict[str, list[str]] = {}
    open_list = ""
    for word in words:
        option = _OPTION.match(word)
        if option is not None:
            key, value = option[1], word[option.end() :].strip()
            if key not in (*_LISTS, *_TEXTS, "keepalive"):
                known = ", ".join((*_TEXTS, *_LISTS, "keepalive"))
                raise BondSpecError(f"net {name}: no option is called {key!r}: known are {known}")
            values[key] = [value]
            open_list = key if key in _LISTS else ""
        elif open_list:
            values[open_list].append(word.strip())
        elif values:
            raise BondSpecError(f"net {name}: {word.strip()!r} after the options: write slaves before them")
        else:
            slaves.append(word.strip())
    if not slaves:
        raise BondSpecError(f"net {name} names no slave: write some, such as bond0(*@tcp0, *@tcp1)")
    return BondAdd(name, slaves, _options(name, values))


def _options(net: str, values: dict[str, list[str]]) -> BondOptions:
    weights = values.get("weights")
    if weights is not None and not all(re.fullmatch(r"[0-9]{1,9}", one) for one in weights):
        raise BondSpecError(f"net {net}: weights={','.join(weights)}: write numbers, such as weights=3,1")
    keepalive = values.get("keepalive", [""])[0]
    if keepalive and not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", keepalive):
        raise BondSpecError(f"net {net}: keepalive={keepalive} is no number of seconds: write keepalive=2")
    return BondOptions(
        mode=_first(values, "mode"),
        policy=_first(values, "policy"),
        failback=_first(values, "failback"),
        weights=None if weights is None else [int(one) for one in weights],
        servers=values.get("bds"),
        keepalive=float(keepalive) if keepalive else None,
    )


def _first(values: dict[str, list[str]], name: str) -> str | None:
    found = values.get(name)
    return found[0] if found else None

"""A bonding NI as an administrator wants it, and the rules that can be checked on one node (design §1)."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ulnet.core.status import LNetError
from ulnet.nid import Net, NetType, Nid, NidError, NidList
from ulnet.wire.bond import MAX_SLAVES, MAX_WEIGHT, Mode, Policy

__all__ = ["MODES", "POLICIES", "BondConfig", "bond_config"]

_MAX_SERVERS: Final = 16
MODES: Final[dict[str, Mode]] = {"standby": Mode.STANDBY, "loadbalance": Mode.LOADBALANCE}
POLICIES: Final[dict[str, Policy]] = {
    "roundrobin": Policy.ROUND_ROBIN,
    "weights": Policy.WEIGHTS,
    "dynamic": Policy.DYNAMIC,
    "congestion": Policy.CONGESTION,
}


@dataclass(frozen=True, slots=True)
class BondConfig:
    """`slaves` in order, the default one first; `servers` are NIDs of bonding data servers.

    `keepalive`: seconds without a message after which a path to a peer in use is tried.
    """

    net: Net
    slaves: tuple[Nid, ...]
    weights: tuple[int, ...]
    mode: Mode = Mode.STANDBY
    policy: Policy = Policy.NONE
    failback: bool = True
    servers: tuple[Nid, ...] = ()
    keepalive: float = 2.0

    @property
    def nid(self) -> Nid:
        """The NID of the bonding NI."""
        return Nid.of(self.net, self.slaves[0].address)


def bond_config(
    net: Net,
    slaves: Sequence[str | Nid],
    local: Iterable[Nid],
    *,
    mode: str = "standby",
    policy: str | None = None,
    failback: bool = True,
    weights: Mapping[str, int] | Sequence[int] | None = None,
    servers: Sequence[str | Nid] = (),
    keepalive: float = 2.0,
) -> BondConfig:
    """What words mean, with NIDs and patterns of the `local` NIs. Raises LNetError: EINVAL, ENOENT."""
    if net.type != NetType.BOND:
        raise _wrong(f"net {net} is no bonding net: name one, such as bond0")
    chosen_mode = MODES.get(mode)
    if chosen_mode is None:
        raise _wrong(f"mode {mode!r} does not exist: write {' or '.join(MODES)}")
    nids = _slaves(slaves, list(local))
    given = _weights(weights, nids)
    chosen = _policy(chosen_mode, policy, given is not None)
    if not 0.1 <= keepalive <= 3600:
        raise _wrong(f"keepalive {keepalive:g} is out of range: give 0.1 to 3600 seconds")
    return BondConfig(
        net,
        nids,
        given or (1,) * len(nids),
        chosen_mode,
        chosen,
        failback,
        _servers(servers),
        keepalive,
    )


def _policy(mode: Mode, text: str | None, weighted: bool) -> Policy:
    if mode is Mode.STANDBY:
        if text is not None:
            raise _wrong(f"policy {text!r} is for mode loadbalance: leave it out in standby")
        return Policy.NONE
    if text is None:
        return Policy.WEIGHTS if weighted else Policy.ROUND_ROBIN
    policy = POLICIES.get(text)
    if policy is None:
        raise _wrong(f"policy {text!r} does not exist: write {', '.join(POLICIES)}")
    return policy


def _slaves(texts: Sequence[str | Nid], local: list[Nid]) -> tuple[Nid, ...]:
    found: dict[Nid, None] = {}
    for text in texts:
        found.update(dict.fromkeys(_matches(text, local)))
    nids = tuple(found)
    if not nids:
        raise _wrong("a bonding NI needs at least one slave: name NIs of this node, such as *@tcp0")
    if len(nids) > MAX_SLAVES:
        raise _wrong(f"{len(nids)} slaves are more than {MAX_SLAVES}, the most that a bonding NI has")
    if len({nid.is_large for nid in nids}) > 1:
        raise _wrong(
            f"slaves {nids[0]} and {next(nid for nid in nids if nid.is_large != nids[0].is_large)}: "
            "either all have IPv6 addresses or none, for no connection carries headers of both sizes"
        )
    return nids


def _matches(text: str | Nid, local: list[Nid]) -> list[Nid]:
    if isinstance(text, Nid):
        wanted = [text]
        patterns = None
    else:
        try:
            # `@tcp0` alone means all of that net, as in the design.
            patterns = NidList.parse(f"*{text}" if text.startswith("@") else text)
        except NidError as bad:
            raise _wrong(f"slave {text!r}: {bad}") from None
        wanted = [nid for nid in local if patterns.match(nid)]
    for kind, word in ((NetType.LO, "the loopback NI"), (NetType.BOND, "a bonding NI")):
        nets = (
            [nid.net.type for nid in wanted] if patterns is None else [r.nets.type for r in patterns.ranges]
        )
        if kind in nets:
            raise _wrong(f"{text} is {word}, which cannot be a slave: name NIs with a wire of their own")
    missing = [nid for nid in wanted if nid not in local]
    if missing or not wanted:
        names = ", ".join(str(nid) for nid in local if nid.net.type not in (NetType.LO, NetType.BOND))
        raise LNetError(
            errno.ENOENT, f"slave {text}: no NI of this node is meant; it has {names or 'none'}: add it first"
        )
    return wanted


def _weights(
    weights: Mapping[str, int] | Sequence[int] | None, nids: tuple[Nid, ...]
) -> tuple[int, ...] | None:
    if weights is None or not len(weights):
        return None
    if isinstance(weights, Mapping):
        by_nid = {_nid(text): weight for text, weight in weights.items()}
        strangers = [nid for nid in by_nid if nid not in nids]
        if strangers:
            raise _wrong(f"a weight is given for {strangers[0]}, which is no slave here")
        numbers: Sequence[int] = [by_nid.get(nid, 1) for nid in nids]
    else:
        numbers = weights
    if len(numbers) != len(nids):
        raise _wrong(f"{len(numbers)} weights for {len(nids)} slaves: give each its own")
    for number in numbers:
        if not 1 <= number <= MAX_WEIGHT:
            raise _wrong(f"weight {number} is out of range: give 1 to {MAX_WEIGHT}")
    return tuple(numbers)


def _servers(servers: Sequence[str | Nid]) -> tuple[Nid, ...]:
    nids = tuple(dict.fromkeys(nid if isinstance(nid, Nid) else _nid(nid) for nid in servers))
    if len(nids) > _MAX_SERVERS:
        raise _wrong(f"{len(nids)} bonding data servers are more than {_MAX_SERVERS}, the most")
    for nid in nids:
        if nid.is_any or nid.net.type in (NetType.LO, NetType.BOND):
            raise _wrong(f"bds={nid}: name a bonding data server by the NID of one of its slaves")
    return nids


def _nid(text: str) -> Nid:
    try:
        return Nid.parse(text)
    except NidError as bad:
        raise _wrong(str(bad)) from None


def _wrong(text: str) -> LNetError:
    return LNetError(errno.EINVAL, text)

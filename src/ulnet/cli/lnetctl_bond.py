"""lnetctl's words for bonding NIs as requests. The real tool has none."""

from __future__ import annotations

from collections.abc import Callable

from ulnet.cli.lnetctl_options import BadValue, Parsed, names_of, number
from ulnet.dlc import model
from ulnet.dlc.model_bond import BondAdd, BondFailover, BondOptions, BondSet, BondSwitch

__all__ = ["BOND_BUILDERS", "bond_add"]

_ONLY_BOND = ("mode", "policy", "failback", "weights", "bds", "keepalive")


def bond_add(parsed: Parsed) -> model.Request | None:
    """`net add` with --slaves; None: an ordinary one. Raises BadValue."""
    if not parsed.flag("slaves"):
        for name in _ONLY_BOND:
            if parsed.flag(name):
                raise BadValue(f"--{name} is for bonding NIs: name their slaves with --slaves")
        return None
    for name in ("if", "nid", "ip2net", "cpt", "credits", "peer-credits"):
        if parsed.flag(name):
            raise BadValue(f"--{name} is the slaves': leave it out with --slaves")
    net = parsed.text("net")
    if not net:
        raise BadValue("no net is named: write --net bond0")
    return BondAdd(net, names_of(parsed.text("slaves")), _options(parsed))


def _options(parsed: Parsed) -> BondOptions:
    weights = [number("--weights", word) for word in names_of(parsed.text("weights"))]
    keepalive = parsed.seconds("keepalive")
    return BondOptions(
        mode=parsed.text("mode"),
        policy=parsed.text("policy"),
        failback=parsed.text("failback"),
        weights=weights or None,
        servers=names_of(parsed.text("bds")) if parsed.flag("bds") else None,
        keepalive=keepalive,
    )


def _bond_set(parsed: Parsed) -> model.Request:
    slaves = names_of(parsed.text("slaves")) if parsed.flag("slaves") else None
    return BondSet(_nid(parsed), slaves, _options(parsed))


def _switch(on: bool) -> Callable[[Parsed], model.Request]:
    def build(parsed: Parsed) -> model.Request:
        slave = parsed.text("slave")
        if not slave:
            raise BadValue("no slave is named: write --slave NID")
        return BondSwitch(_nid(parsed), slave, on)

    return build


def _failover(parsed: Parsed) -> model.Request:
    return BondFailover(_nid(parsed), parsed.text("slave"))


def _nid(parsed: Parsed) -> str:
    nid = parsed.text("nid")
    if not nid:
        raise BadValue("no bonding NI is named: write --nid ADDR@bond0")
    return nid


BOND_BUILDERS: dict[str, Callable[[Parsed], model.Request]] = {
    "bond_set": _bond_set,
    "bond_on": _switch(True),
    "bond_off": _switch(False),
    "bond_failover": _failover,
}

"""The words of bonding as tables: options of `net add`, and `bond`."""

from __future__ import annotations

from ulnet.cli.lnetctl_words import Command, Option

__all__ = ["BONDS", "BOND_OPTIONS"]

_SLAVES = Option("slaves", "NIs of this node by NID or pattern, the default one first: *@tcp,*@tcp1", "LIST")
BOND_OPTIONS = (
    _SLAVES,
    Option("mode", "standby (one slave at a time) or loadbalance (standby)", "MODE"),
    Option("policy", "of loadbalance: roundrobin, weights, dynamic or congestion (roundrobin)", "POLICY"),
    Option("failback", "return to the default slave when it is back, or stay (return)", "WORD"),
    Option("weights", "of the slaves, in their order, such as 3,1", "LIST"),
    Option("bds", "bonding data servers, by NIDs of slaves of theirs", "LIST"),
    Option("keepalive", "seconds without a message until a path in use is tried (2)", "S", kind="seconds"),
)
_NID = Option("nid", "the bonding NI, such as 10.0.0.1@bond0", "NID")
_SLAVE = Option("slave", "NID of a slave", "NID")

BONDS = (
    Command(
        ("bond", "set"),
        "change a bonding NI while it runs",
        (_NID, *BOND_OPTIONS),
        examples=("lnetctl bond set --nid 10.0.0.1@bond0 --mode loadbalance --policy dynamic",),
        action="bond_set",
        request="BondSet",
    ),
    Command(
        ("bond", "on"),
        "switch a slave on",
        (_NID, _SLAVE),
        examples=("lnetctl bond on --nid 10.0.0.1@bond0 --slave 10.1.0.1@tcp1",),
        action="bond_on",
        request="BondSwitch",
    ),
    Command(
        ("bond", "off"),
        "switch a slave off: it stays up, and carries nothing for the bonding NI",
        (_NID, _SLAVE),
        examples=("lnetctl bond off --nid 10.0.0.1@bond0 --slave 10.1.0.1@tcp1",),
        action="bond_off",
        request="BondSwitch",
    ),
    Command(
        ("bond", "failover"),
        "make another slave of a standby NI the active one",
        (_NID, Option("slave", "NID of that slave (the next one that works)", "NID")),
        examples=("lnetctl bond failover --nid 10.0.0.1@bond0",),
        action="bond_failover",
        request="BondFailover",
    ),
)

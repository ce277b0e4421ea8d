"""The words about health as tables: `net set`, `peer set`, `debug` (spec lnetctl.md §1, health.md §6)."""

from __future__ import annotations

from ulnet.cli.lnetctl_words import Command, Option, tunable_options

__all__ = ["DEBUG", "NET_SET", "PEER_SET"]

NET_SET = Command(
    ("net", "set"),
    "change values of NIs",
    (
        Option("nid", "the NIs to change", "LIST", "n", "names", "nids"),
        Option("all", "change all NIs"),
        Option("health", "health value, 0 to 1000", "N", kind="number", most=1000),
        *tunable_options("net set", driver=False),
        *tunable_options("net set", driver=True),
        Option("cpt", "CPU partitions that they use, such as [0,2-3], or * for all", "CPTS", field="cpts"),
        Option(
            "drain",
            "1: nothing new leaves by them, and peers send elsewhere; 0: use them",
            "0|1",
            kind="number",
            most=1,
        ),
        Option("net", "with --lnd-timeout: the type of nets, such as tcp", "TYPE"),
        Option(
            "lnd-timeout",
            "seconds a message may take; 0 derives it from transaction_timeout",
            "S",
            kind="number",
            field="lnd_timeout",
            most=2**31 - 1,
        ),
    ),
    examples=(
        "lnetctl net set --nid 10.0.0.1@tcp --health 1000",
        "lnetctl net set --net tcp --lnd-timeout 5",
        "lnetctl net set --nid 10.0.0.1@tcp --cpt [0,1]",
        "lnetctl net set --nid 10.0.0.1@tcp --drain 1",
    ),
    request="NetSet",
)

PEER_SET = Command(
    ("peer", "set"),
    "change values of peer NIs",
    (
        Option("nid", "the peer NIs to change", "LIST", "n"),
        Option("all", "change all peer NIs"),
        Option("health", "health value, 0 to 1000", "N", kind="number"),
        Option("state", "refused: states follow from what happens", "N"),
    ),
    examples=("lnetctl peer set --nid 10.0.0.2@tcp --health 1000",),
    action="peer_set",
    request="PeerSet",
)

DEBUG = (
    Command(
        ("debug", "recovery"),
        "list who is pinged until it is well",
        (Option("local", "local NIs", short="l"), Option("peer", "peer NIs", short="p")),
        examples=("lnetctl debug recovery --peer",),
        request="RecoveryShow",
    ),
    Command(
        ("debug", "peer"),
        "put what the node knows of a peer into its log",
        (Option("nid", "one NID of it", "NID", "n"),),
        examples=("lnetctl debug peer --nid 10.0.0.2@tcp",),
        action="debug_peer",
        request="PeerDebug",
    ),
)

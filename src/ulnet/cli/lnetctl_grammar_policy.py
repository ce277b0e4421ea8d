"""The words of `udsp` and `selection` as tables (spec udsp.md §6, §7)."""

from __future__ import annotations

from ulnet.cli.lnetctl_words import Command, Option

__all__ = ["POLICIES"]

_VERBOSE = Option("verbose", "also what each rule does, and how much it matches now", "LEVEL", "v", "level")

_PRIORITY = Option("priority", "0, the highest, which is the default, and up", "N", "p", "number")
_WEIGHT = Option(
    "weight", "messages in a row before the next of those with this priority has its turn", "N", kind="number"
)

_UDSP = (
    Command(
        ("udsp", "add"),
        "add a selection policy, or change the priority or weight of one",
        (
            Option("src", "local NIDs or nets, such as 10.0.0.[1-4]@tcp or tcp[1-3]", "DESCR", "s"),
            Option(
                "dst", "remote NIDs or nets; with --src: that is preferred for sending to them", "DESCR", "d"
            ),
            Option("rte", "gateways' NIDs; with --dst: they are preferred on the way there", "DESCR", "r"),
            _PRIORITY,
            _WEIGHT,
            Option("idx", "place in the list, where earlier rules override later ones (the end)", "N", "i"),
        ),
        examples=(
            "lnetctl udsp add --src 10.0.0.1@tcp --priority 1",
            "lnetctl udsp add --src tcp --weight 3",
        ),
        action="udsp_add",
        request="UdspAdd",
    ),
    Command(
        ("udsp", "del"),
        "delete selection policies",
        (Option("all", "all of them"), Option("idx", "the one at this place in the list", "N", "i")),
        examples=("lnetctl udsp del --idx 0",),
        action="udsp_del",
        request="UdspDel",
    ),
    Command(
        ("udsp", "show"),
        "show selection policies",
        (Option("idx", "only the one at this place in the list", "N", "i"), _VERBOSE),
        examples=("lnetctl udsp show",),
        action="udsp_show",
        request="UdspShow",
    ),
)

_SIDE = Option("side", "local or remote ones only (both)", "SIDE")
_ID = Option(
    "id", "the rule's ID, as shown; given with a pattern, both must name one rule", "ID", kind="number"
)
_NET = Option("net", "net or nets, such as o2ib, o2ib* or o2ib[1,2]", "NET")
_NID = Option("nid", "NIDs by pattern, such as 10.0.[0-3].*@tcp1", "NIDS")
_LOCAL = Option("local", "local NIDs by pattern", "NIDS")
_REMOTE = Option("remote", "remote NIDs by pattern", "NIDS")


def _selection(kind: str, what: str, patterns: tuple[Option, ...], example: str) -> tuple[Command, ...]:
    """add, del and show of one kind of rule."""
    more = () if kind == "peer" else (_SIDE,)
    return (
        Command(
            ("selection", kind, "add"),
            f"add a rule for {what}, or change its priority or weight",
            (*patterns, _PRIORITY, _WEIGHT, *more),
            examples=(f"lnetctl selection {kind} add {example} --priority 1",),
            action=f"selection_{kind}_add",
            request="SelectionAdd",
        ),
        Command(
            ("selection", kind, "del"),
            f"delete a rule for {what}",
            (*patterns, _ID),
            examples=(f"lnetctl selection {kind} del {example}", f"lnetctl selection {kind} del --id 0"),
            action=f"selection_{kind}_del",
            request="SelectionDel",
        ),
        Command(
            ("selection", kind, "show"),
            f"show the rules for {what}",
            patterns,
            examples=(f"lnetctl selection {kind} show",),
            action=f"selection_{kind}_show",
            request="SelectionShow",
        ),
    )


POLICIES = (
    *_UDSP,
    *_selection("net", "nets", (_NET,), "--net tcp1"),
    *_selection("nid", "NIDs", (_NID,), "--nid 10.0.0.*@tcp"),
    *_selection("peer", "pairs of NIDs", (_LOCAL, _REMOTE), "--local 10.0.0.1@tcp --remote 10.0.0.2@tcp"),
)

"""lnetctl's words as tables (spec lnetctl.md §1): help, parser and man page are drawn from them."""

from __future__ import annotations

from ulnet.cli.lnetctl_grammar_access import ACCESS
from ulnet.cli.lnetctl_grammar_bond import BOND_OPTIONS, BONDS
from ulnet.cli.lnetctl_grammar_fault import FAULTS, LCTL_FAULTS
from ulnet.cli.lnetctl_grammar_health import DEBUG, NET_SET, PEER_SET
from ulnet.cli.lnetctl_grammar_policy import POLICIES
from ulnet.cli.lnetctl_grammar_routing import ROUTES
from ulnet.cli.lnetctl_kernel import KERNEL_ONLY
from ulnet.cli.lnetctl_nidlist import NIDLIST
from ulnet.cli.lnetctl_words import Command, Option, tunable_options
from ulnet.dlc.settings import BUFFERS, ROUTER, SETTINGS

__all__ = ["COMMANDS", "COMMON", "GROUPS", "Command", "Option", "commands_of"]


COMMON = (
    Option("help", "show this help and do nothing", short="h"),
    Option("socket", "control socket of the lnetd to talk to", "PATH"),
)

_NET = Option("net", "net, such as tcp or tcp1", "NET", "n")
_NETS_SHOWN = Option("net", "only these nets, such as tcp,tcp1; may be repeated", "LIST", "n", "list")
_IF = Option(
    *("if", "interfaces, such as eth0,eth1; CPTs of each in brackets: eth0[0]", "LIST", "i", "names"),
    field="interfaces",
)
_VERBOSE = Option(
    "verbose", "more about each: 1, or the LEVEL from 0 to 4", "LEVEL", "v", "level", "verbosity"
)
_LOAD = Option("load", "how busy each is, and how often it was chosen, by the criterion that decided")
_TIMEOUT = Option("timeout", "seconds to wait for each answer (1)", "S", "t", "seconds")


_LNET = (
    Command(
        ("lnet", "configure"),
        "start LNet on this node, with 0@lo alone",
        (
            Option("all", "also do what lnetd was started with: files, module parameters", short="a"),
            Option("large", "an interface named without NID gets its IPv6 address, if it has one", short="l"),
        ),
        examples=("lnetctl lnet configure",),
        request="LnetConfigure",
    ),
    Command(
        ("lnet", "unconfigure"),
        "shut LNet down; lnetd stays",
        examples=("lnetctl lnet unconfigure",),
        request="LnetUnconfigure",
    ),
)

_NETS = (
    Command(
        ("net", "add"),
        "add NIs: interfaces to a net, or NIDs",
        (
            _NET,
            _IF,
            Option("nid", "NIDs to bring up, in place of --net and --if", "LIST"),
            Option("ip2net", "rules by address, in place of --net and --if: 'tcp(eth0) 10.0.*.*'", "RULES"),
            *tunable_options("net add", driver=False),
            Option("cpt", "CPU partitions of the NIs, such as [0,2-3] (all)", "CPTS"),
            *tunable_options("net add", driver=True),
            Option("skip-mr-route-setup", "accepted and without effect: no kernel routes are touched here"),
            *BOND_OPTIONS,
        ),
        examples=(
            "lnetctl net add --net tcp --if eth0,eth1",
            "lnetctl net add --nid 10.0.0.1@tcp1",
            "lnetctl net add --ip2net 'tcp 10.0.*.*; tcp1(eth1) 10.1.[0-3].*'",
            "lnetctl net add --net bond0 --slaves '*@tcp,*@tcp1' --mode loadbalance",
        ),
        action="net_add",
        request="NetAdd",
    ),
    Command(
        ("net", "del"),
        "delete a net, some of its NIs, or NIDs",
        (
            _NET,
            _IF,
            Option("nid", "NIDs to shut down, in place of --net and --if", "LIST", "", "names", "nids"),
            Option("force", "at once: messages under way there fail, in place of errno EBUSY"),
        ),
        examples=("lnetctl net del --net tcp --if eth1",),
        request="NetDel",
    ),
    Command(
        ("net", "show"),
        "show nets and their NIs",
        (_NETS_SHOWN, _VERBOSE, _LOAD),
        examples=("lnetctl net show -v 2 --net tcp",),
        request="NetShow",
    ),
    NET_SET,
)

_PRIMARY = Option("prim_nid", "primary NID of the peer", "NID", "p", field="primary")
_PEERS = (
    Command(
        ("peer", "add"),
        "configure a peer, or add NIDs to one",
        (
            _PRIMARY,
            Option("nid", "its other NIDs, also ranges; without -p the first is the primary", "LIST", "n"),
            Option("non_mr", "the peer is not Multi-Rail"),
            Option("lock_prim", "nothing but --force may change its primary NID"),
        ),
        examples=("lnetctl peer add --prim_nid 10.0.0.2@tcp --nid 10.0.[1-3].2@tcp1",),
        action="peer_add",
        request="PeerAdd",
    ),
    Command(
        ("peer", "del"),
        "delete NIDs of a peer, or the peer",
        (
            _PRIMARY,
            Option("nid", "NIDs to remove; without it the whole peer goes", "LIST", "n", "names", "nids"),
            Option("force", "also if the primary NID is locked"),
        ),
        examples=("lnetctl peer del --prim_nid 10.0.0.2@tcp",),
        request="PeerDel",
    ),
    Command(
        ("peer", "show"),
        "show peers and their NIDs",
        (
            Option("nid", "only the peers that have these NIDs", "LIST", "n"),
            Option("max", "at most so many peers, in the order of their NIDs", "N"),
            Option("after", "only peers whose primary NID is behind this one: the next page", "NID"),
            _VERBOSE,
            _LOAD,
        ),
        examples=(
            "lnetctl peer show -v --nid 10.0.0.2@tcp",
            "lnetctl peer show --max 100 --after 10.0.0.2@tcp",
        ),
        action="peer_show",
        request="PeerShow",
    ),
    Command(
        ("peer", "list"),
        "list the peers' primary NIDs",
        examples=("lnetctl peer list",),
        request="PeerList",
    ),
    PEER_SET,
)

_OTHERS = (
    Command(
        ("ping",),
        "ask nodes for their NIDs",
        (Option("source", "local NID to ask from", "NID", "s"), _TIMEOUT),
        "NID[,NID...]...",
        ("lnetctl ping 10.0.0.2@tcp 10.0.0.[3-5]@tcp", "lnetctl ping --timeout 3 10.0.0.2@tcp"),
        "ping",
        "Ping",
    ),
    Command(
        ("discover",),
        "find out which NIDs peers have, and tell them ours",
        (
            Option("force", "tell them, too, what they know already", short="f"),
            Option("verify", "only compare what they tell with what is configured, and list the differences"),
        ),
        "NID[,NID...]...",
        ("lnetctl discover 10.0.0.2@tcp 10.0.0.[3-5]@tcp", "lnetctl discover --verify 10.0.0.2@tcp"),
        "discover",
        "Discover",
    ),
    Command(
        ("explain",),
        "show which path a message would take, and what eliminated the others",
        (
            Option("to", "NID of the peer", "NID"),
            Option("from", "local NID, where the message is bound to one", "NID"),
            Option("size", "bytes of the message, up to 1048576 (0)", "N", kind="number"),
            Option("numa", "CPT of the message's memory (0)", "N", kind="number"),
            Option("json", "JSON in place of a table"),
        ),
        examples=("lnetctl explain --to 10.0.0.2@tcp --size 1048576",),
        action="explain",
        request="Explain",
    ),
    Command(
        ("numa", "show"),
        "show the CPTs, and how far they are from one another",
        examples=("lnetctl numa show",),
        request="NumaShow",
    ),
    Command(
        ("cpt-of-nid",),
        "show which CPTs take care of NIDs",
        operands="NID...",
        examples=("lnetctl cpt-of-nid 10.0.0.2@tcp 10.0.0.[3-5]@tcp",),
        request="CptOfNids",
    ),
    Command(
        ("stats", "show"),
        "show the node's counters",
        examples=("lnetctl stats show",),
        request="StatsShow",
    ),
    Command(
        ("stats", "nets"),
        "show counters added up over the NIs of each net",
        (_NET,),
        examples=("lnetctl stats nets", "lnetctl stats nets --net tcp"),
        action="stats_nets",
        request="SumsShow",
    ),
    Command(
        ("stats", "peers"),
        "show counters added up over the NIDs of each peer",
        (Option("nid", "only the peer that has this NID", "NID"),),
        examples=("lnetctl stats peers --nid 10.0.0.2@tcp",),
        action="stats_peers",
        request="SumsShow",
    ),
    Command(
        ("stats", "heat"),
        "show how much NIs are used, the hottest first; a message counts half after a minute",
        (
            Option("peers", "the NIs of peers, in place of this node's"),
            Option("top", "at most so many (all)", "N", kind="number"),
        ),
        examples=("lnetctl stats heat --peers --top 10",),
        action="stats_heat",
        request="UseShow",
    ),
    Command(
        ("stats", "reset"),
        "set the counters of the node, its NIs and peers to zero",
        (Option("all", "also begin anew to measure heat"),),
        examples=("lnetctl stats reset", "lnetctl stats reset --all"),
        request="StatsReset",
    ),
    Command(
        ("global", "show"),
        "show node-wide settings",
        examples=("lnetctl global show",),
        request="GlobalShow",
    ),
    Command(
        ("import",),
        "configure from FILE, or from standard input",
        (
            Option(
                "add", "add what it names, which is the default; a peer's NIDs become those named", short="a"
            ),
            Option("del", "delete what it names", short="d"),
            Option("show", "show what it names", short="s"),
            Option("exec", "ping and discover what it names", short="e"),
            Option("apply", "bring the node to FILE: what it does not name goes; see ulnet-apply(1)"),
            Option("old-api", "accepted and without effect: there is one way only", short="o"),
        ),
        "[FILE]",
        (
            "lnetctl import /etc/lnet.conf",
            "lnetctl import --del < lnet.yaml",
            "lnetctl import --apply /etc/lnet.conf",
        ),
        "import",
    ),
    Command(
        ("export",),
        "print the configuration, or write it to FILE",
        (Option("backup", "only what a restore needs", short="b"),),
        "[FILE]",
        ("lnetctl export --backup > lnet.yaml",),
        "export",
        "Export",
    ),
)


def _set(name: str, summary: str, example: int) -> Command:
    examples = (f"lnetctl set {name} {example}",)
    return Command(("set", name), summary, operands="VALUE", examples=examples, action=f"set_{name}")


_SET = (
    *(_set(name, one.help, one.example) for name, one in SETTINGS.items() if one.help),
    _set("routing", "forward messages for others: 1, or 0 no more", 1),
    *(_set(one.word or name, one.help, one.example) for name, one in {**ROUTER, **BUFFERS}.items()),
)

_JSON = Option("json", "JSON in place of YAML")


def _with_json(command: Command) -> Command:
    """Commands that show something can print it as JSON."""
    shows = command.words[-1] in ("show", "list", "recovery") or command.words in _SHOWS
    return command._replace(options=(*command.options, _JSON)) if shows else command


_SHOWS = (("stats", "nets"), ("stats", "peers"), ("stats", "heat"), ("cpt-of-nid",))

COMMANDS: tuple[Command, ...] = tuple(
    _with_json(command)
    for command in (
        *(*_LNET, *_NETS, *_PEERS, *_OTHERS, *_SET),
        *(*ROUTES, *POLICIES, *ACCESS, *BONDS, *FAULTS, *DEBUG, NIDLIST, *KERNEL_ONLY),
    )
)

# First words, in the order in which help shows them.
GROUPS: tuple[str, ...] = tuple(dict.fromkeys(command.words[0] for command in COMMANDS))


def commands_of(*words: str) -> list[Command]:
    """The commands that begin with these words."""
    return [command for command in (*COMMANDS, *LCTL_FAULTS) if command.words[: len(words)] == words]

"""networks=, ip2nets=, routes= and modprobe files: what they ask for, and what is wrong with them."""

from __future__ import annotations

from contextlib import suppress

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ulnet.core.status import LNetError
from ulnet.dlc.config import read_config
from ulnet.dlc.legacy import LegacyError, read_ip2nets, read_networks, read_routes
from ulnet.dlc.legacy_text import read_text
from ulnet.dlc.model import (
    BuffersSet,
    GlobalSet,
    Ip2netsRule,
    NetAdd,
    NetMatch,
    PeerAdd,
    PeerRefresh,
    Request,
    RouteAdd,
    RouterSet,
    RoutingSet,
    SelectionAdd,
    Tunables,
    UdspAdd,
)
from ulnet.dlc.modprobe import module_requests, read_modprobe
from ulnet.dlc.writing import document_of
from ulnet.dlc.yaml_out import emit_document
from ulnet.lnd.tcp.params import TcpParams


def net(name: str, *interfaces: str, cpts: str | None = None, **tunables: int) -> NetAdd:
    return NetAdd(name, list(interfaces), in_file=True, tunables=Tunables(**tunables), cpts=cpts)


@pytest.mark.requirement("HLD-modparams", "cfg-015", "cfg-025")
@pytest.mark.parametrize(
    ("text", "requests"),
    [
        ("tcp0(eth0)", [net("tcp0", "eth0")]),
        (
            "tcp0(eth0,eth1), tcp1( eth2 )[0,2-3]",
            [net("tcp0", "eth0", "eth1"), net("tcp1", "eth2", cpts="[0,2-3]")],
        ),
        (
            "tcp(eth0[0],eth1[1,2]),o2ib(ib0)",
            [net("tcp", "eth0[0]", "eth1[1,2]"), net("o2ib", "ib0")],
        ),
        (
            "tcp0(eth0, credits=256, peer_credits=16), tcp1(eth1, credits=128)",
            [net("tcp0", "eth0", credits=256, peer_credits=16), net("tcp1", "eth1", credits=128)],
        ),
        ("tcp", [NetMatch([Ip2netsRule("tcp")])]),
        ("tcp # the first interface", [NetMatch([Ip2netsRule("tcp")])]),
    ],
)
def test_networks(text: str, requests: list[NetAdd | NetMatch]) -> None:
    assert read_networks(text) == requests


@pytest.mark.requirement("HLD-modparams")
def test_what_a_net_says_itself_goes_before_what_its_module_says() -> None:
    module = Tunables(credits=16, peer_credits=4)
    assert read_networks("tcp(eth0,credits=8)", module) == [net("tcp", "eth0", credits=8, peer_credits=4)]
    rule = Ip2netsRule("tcp", ["eth0"], ["10.*.*.*"], Tunables(credits=8, peer_credits=4))
    assert read_ip2nets("tcp(eth0,credits=8) 10.*.*.*", module) == [rule]


@pytest.mark.requirement("HLD-modparams", "HLD-ip2nets")
@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("tcp0(eth0) 192.168.0.*", [Ip2netsRule("tcp0", ["eth0"], ["192.168.0.*"])]),
        (
            "tcp(eth[0-1]) 10.0.[1-9/2].*  10.1.0.[1,2] # two ranges; o2ib2 *.*.*.* # all\n ; ",
            [
                Ip2netsRule("tcp", ["eth[0-1]"], ["10.0.[1-9/2].*", "10.1.0.[1,2]"]),
                Ip2netsRule("o2ib2", [], ["*.*.*.*"]),
            ],
        ),
        (
            "tcp(eth0,credits=8)[1] 10.0.0.0/8",
            [Ip2netsRule("tcp", ["eth0"], ["10.0.0.0/8"], Tunables(credits=8), "[1]")],
        ),
    ],
)
def test_ip2nets(text: str, rules: list[Ip2netsRule]) -> None:
    assert read_ip2nets(text) == rules


@pytest.mark.requirement("HLD-modparams")
@pytest.mark.parametrize(
    ("text", "routes"),
    [
        ("o2ib 192.168.0.1@tcp", [RouteAdd("o2ib", "192.168.0.1@tcp")]),
        (
            "tcp[1-2] 3 10.0.0.[1-4]@tcp:2 10.0.0.9@tcp; o2ib0 1 10.0.0.1@tcp3",
            [
                RouteAdd("tcp1", "10.0.0.[1-4]@tcp", 3, 2),
                RouteAdd("tcp1", "10.0.0.9@tcp", 3),
                RouteAdd("tcp2", "10.0.0.[1-4]@tcp", 3, 2),
                RouteAdd("tcp2", "10.0.0.9@tcp", 3),
                RouteAdd("o2ib0", "10.0.0.1@tcp3", 1),
            ],
        ),
        (
            "tcp1 2 10.0.0.1:4 10.0.0.[2-3]",  # without a net they are on tcp
            [RouteAdd("tcp1", "10.0.0.1@tcp", 2, 4), RouteAdd("tcp1", "10.0.0.[2-3]@tcp", 2, 0)],
        ),
        (
            "tcp1 2:3 10.0.0.1@tcp 10.0.0.2@tcp:0",
            [RouteAdd("tcp1", "10.0.0.1@tcp", 2, 3), RouteAdd("tcp1", "10.0.0.2@tcp", 2, 0)],
        ),
    ],
)
def test_routes(text: str, routes: list[RouteAdd]) -> None:
    assert read_routes(text) == routes


@pytest.mark.parametrize(
    ("read", "text", "told"),
    [
        (read_networks, "", "networks= names no net: write one, such as networks=tcp0(eth0)"),
        (
            read_networks,
            "tcp0(eth0",
            "'tcp0(eth0': a bracket is not closed, or not opened: write tcp0(eth0,eth1)",
        ),
        (read_networks, "tcp0 eth0", "'tcp0 eth0' is no net with interfaces: write tcp0 or tcp0(eth0,eth1)"),
        (read_networks, "tcp0(eth0, credit=4)", "net tcp0: no option is called 'credit': known are "),
        (read_networks, "tcp0(eth0, credits=many)", "net tcp0: credits=many is not a number: write digits"),
        (read_networks, "bond0(mode=standby)", "net bond names no slave: write some, such as bond0("),
        (read_networks, "banana0", "net 'banana0' has no known type"),
        (read_ip2nets, "tcp(eth0) 10.0.0", "address '10.0.0' has not four parts"),
        (read_ip2nets, "10.0.0.1", "'10.0.0.1' is no ip2nets rule: write a net, its interfaces and"),
        (read_ip2nets, "#", "ip2nets holds no rule: write one"),
        (read_routes, "tcp1 300 10.0.0.1@tcp", "route 'tcp1 300 10.0.0.1@tcp': 300 hops are out of range"),
        (read_routes, "tcp1 0:3 10.0.0.1@tcp", "route 'tcp1 0:3 10.0.0.1@tcp': 0 hops are out of range"),
        (read_routes, "tcp1", "route 'tcp1' is not complete: write a net and a gateway"),
        (read_routes, "tcp1 10.0.0.1@tcp:x", "route 'tcp1 10.0.0.1@tcp:x': after ':' comes a priority"),
        (read_routes, "tcp* 10.0.0.1@tcp", "route 'tcp* 10.0.0.1@tcp': net 'tcp*' stands for all numbers"),
    ],
)
def test_what_is_wrong_is_named_with_a_way_out(read: object, text: str, told: str) -> None:
    assert callable(read)
    with pytest.raises(LegacyError) as wrong:
        read(text)
    assert str(wrong.value).startswith(told)


@given(st.text(alphabet="tcp0o2ib(),[]=;#\n .*@:1-/ ethbond", max_size=60), st.sampled_from([0, 1, 2]))
def test_any_text_is_read_or_refused_in_words(text: str, which: int) -> None:
    with suppress(LegacyError):
        (read_networks, read_ip2nets, read_routes)[which](text)


@given(st.text(alphabet="tcp0o2ib(){}:,[]=;#\n .*@1-/ 'gatewyhopnrks", max_size=80))
def test_text_of_no_certain_form_is_read_or_refused_in_words(text: str) -> None:
    with suppress(LegacyError):
        read_text(text)


MODPROBE = """\
# of a site
alias lustre lustre
options lnet networks="tcp0(eth0,eth1)" \\
    routes='o2ib 10.0.0.1@tcp' lnet_retry_count=3 lnet_transaction_timeout=100
options lnet lnet_peer_discovery_disabled=1 forwarding=enabled tiny_router_buffers=64 accept_port=987
options lnet accept_port_bulk=986
options ksocklnd peer_credits=16 conns_per_peer=4 sock_timeout=30 nscheds=2
options libcfs cpu_npartitions=2
options ko2iblnd map_on_demand=1
options e1000 foo=1
options lnet use_tcp_bonding=1
"""


@pytest.mark.requirement("HLD-modparams", "bck-015")
def test_a_modprobe_file() -> None:
    found = read_modprobe(MODPROBE)
    assert found.requests == [
        GlobalSet({"retry_count": 3, "transaction_timeout": 100, "use_tcp_bonding": 1, "discovery": 0}),
        net("tcp0", "eth0", "eth1", peer_credits=16, conns_per_peer=4, timeout=30),
        RouteAdd("o2ib", "10.0.0.1@tcp"),
        RoutingSet(enable=True),
        BuffersSet(tiny=64),
    ]
    assert found.notes == [
        "accept_port: start lnetd with --accept-port 987",
        "accept_port_bulk: start lnetd with --accept-port-bulk 986",
        "cpu_npartitions: start lnetd with --cpu-npartitions 2",
        "nscheds: without effect; it is the kernel's own",
    ]
    assert not found.unknown


@pytest.mark.requirement("HLD-modparams")
def test_parameters_of_ksocklnd_and_of_the_acceptor() -> None:
    text = (
        "options ksocklnd keepalive=10 keepalive_idle=20 keepalive_intvl=3 keepalive_count=4 min_bulk=4096\n"
        "options ksocklnd typed_conns=0 enable_csum=1 round_robin=0 nonblk_zcack=0 eager_ack=2 nagle=0\n"
        "options ksocklnd tx_buffer_size=1048576 rx_buffer_size=2097152 min_reconnectms=500 typed_con=1\n"
        "options ksocklnd max_reconnectms=30000\noptions lnet accept_backlog=77 accept_timeout=9\n"
    )
    found = read_modprobe(text)
    numbers = {"keepalive": 10, "keepalive_idle": 20, "keepalive_intvl": 3, "keepalive_count": 4}
    sizes = {"min_bulk": 4096, "tx_buffer_size": 1048576, "rx_buffer_size": 2097152}
    pauses = {"min_reconnectms": 500, "max_reconnectms": 30000}
    flags = {"typed_conns": False, "enable_csum": True, "round_robin": False}
    acks = {"nonblk_zcack": False, "eager_ack": True}
    acceptor = {"accept_backlog": 77, "accept_timeout": 9}
    assert found.tcp == {**numbers, **sizes, **pauses, **flags, **acks, **acceptor}
    params = TcpParams(**found.tcp)  # type: ignore[arg-type]
    assert all(getattr(params, name) == value for name, value in found.tcp.items())
    assert found.notes == ["nagle: without effect; it is the kernel's own"]
    assert found.unknown == ["typed_con=1: nothing in ulnet corresponds to it; did you mean typed_conns?"]


@pytest.mark.requirement("HLD-modparams")
@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("keepalive", -1, "use 0 to 2147483647"),
        ("keepalive_idle", 32768, "use 0 to 32767"),
        ("keepalive_intvl", -3, "use 0 to 32767"),
        ("keepalive_count", 128, "use 0 to 127"),
        ("min_bulk", -1, "use 0 to 2147483647"),
        ("tx_buffer_size", 2**30 + 1, "use 0 to 1073741824"),
        ("rx_buffer_size", -1, "use 0 to 1073741824"),
        ("min_reconnectms", -1, "use 0 to 2147483647"),
        ("max_reconnectms", -1, "use 0 to 2147483647"),
        ("accept_backlog", 0, "use 1 to 65535"),
        ("accept_timeout", 0, "use 0.001 to 86400"),
    ],
)
def test_parameters_of_the_tcp_driver_out_of_range(name: str, value: int, rule: str) -> None:
    with pytest.raises(LNetError, match=f"{name}={value} is out of range: {rule}"):
        TcpParams(**{name: value})  # type: ignore[arg-type]


@pytest.mark.requirement("HLD-modparams", "LND-o2ib")
def test_parameters_of_ko2iblnd() -> None:
    text = (
        "options lnet networks=o2ib(ib0)\n"
        "options ko2iblnd peer_credits=32 peer_credits_hiw=16 credits=1024 concurrent_sends=64 ntx=2048 "
        "map_on_demand=256 fmr_pool_size=2048 fmr_flush_trigger=512 fmr_cache=1 conns_per_peer=4 timeout=20\n"
        "options ko2iblnd retry_count=7 service=988 nscheds=4 typo=1\n"
    )
    found = read_modprobe(text)
    (request,) = found.requests
    assert request == net(
        *("o2ib", "ib0"),
        peer_credits=32,
        peercredits_hiw=16,
        credits=1024,
        concurrent_sends=64,
        ntx=2048,
        map_on_demand=256,
        fmr_pool_size=2048,
        fmr_flush_trigger=512,
        fmr_cache=1,
        conns_per_peer=4,
        timeout=20,
    )
    assert found.o2ib == {"retry_count": 7, "service": 988}
    assert found.notes == ["nscheds: without effect; it is the kernel's own"]
    assert len(found.unknown) == 1 and found.unknown[0].startswith("typo=1")


@pytest.mark.requirement("HLD-modparams")
def test_parameters_of_a_driver_are_for_its_own_nets() -> None:
    drivers = (
        "options ksocklnd peer_credits=16 conns_per_peer=4 sock_timeout=30\n"
        "options ko2iblnd peer_credits=32 credits=512 timeout=20\n"
    )
    found = read_modprobe(
        drivers + "options lnet networks='tcp(eth0,credits=9),o2ib(ib0),gni,tcp1'\n"
    ).requests
    assert found == [
        net("tcp", "eth0", peer_credits=16, conns_per_peer=4, timeout=30, credits=9),
        net("o2ib", "ib0", peer_credits=32, credits=512, timeout=20),
        NetMatch([Ip2netsRule("gni")]),
        NetMatch([Ip2netsRule("tcp1", tunables=Tunables(peer_credits=16, conns_per_peer=4, timeout=30))]),
    ]
    found = read_modprobe(drivers + "options lnet ip2nets='tcp(eth0) 10.0.*.*; o2ib 10.1.*.*'\n").requests
    assert isinstance(found[0], NetMatch)
    assert [rule.tunables["peer_credits"] for rule in found[0].rules] == [16, 32]


def test_what_a_modprobe_file_may_have_meant() -> None:
    found = read_modprobe(
        "options ksocklnd peer_credit=3\noptions lnet networks=tcp\noptions lnet networks=tcp networks=tcp1\n"
    )
    assert [request.rules[0].net for request in found.requests if isinstance(request, NetMatch)] == ["tcp1"]
    assert found.notes == ["line 3: networks of lnet is given twice: the last one counts"]
    assert found.unknown == ["peer_credit=3: nothing in ulnet corresponds to it; did you mean peer_credits?"]
    found = read_modprobe("options ksoclnd credits=8\noptions kbondlnd mode=1\noptions snd_hda_intel a=1\n")
    assert found.unknown == [
        "line 1: ksoclnd is no module of LNet; did you mean ksocklnd?",
        "mode=1: nothing in ulnet corresponds to it",
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("options lnet networks='tcp", "line 1: No closing quotation: close the quotation mark"),
        ("\noptions lnet networks", "line 2: 'networks' is no parameter: write NAME=VALUE"),
        ("options lnet networks=tcp ip2nets=tcp", "networks= and ip2nets= exclude each other: leave one"),
        ("options lnet lnet_retry_count=x", "lnet_retry_count=x is not a number"),
        ("options lnet forwarding=on", "forwarding=on is neither enabled nor disabled"),
    ],
)
def test_what_is_wrong_with_a_modprobe_file(text: str, told: str) -> None:
    with pytest.raises(LegacyError) as wrong:
        read_modprobe(text)
    assert str(wrong.value).startswith(told)


@pytest.mark.requirement("HLD-modparams")
def test_parameters_are_written_as_files_that_ask_for_the_same() -> None:
    requests = [
        *module_requests({"networks": "tcp0(eth0,eth1,credits=9)[0],tcp1(eth2[1]),tcp2"}).requests,
        *module_requests({"routes": "o2ib 2 10.0.0.1@tcp:3"}).requests,
        NetAdd(nids=["10.0.0.9@tcp"], in_file=True),
        NetAdd("tcp", ["eth3"], prefer="10.0.0.8@tcp", in_file=True, tunables=Tunables(tos=3)),
    ]
    asked = [step.request for step in read_config(emit_document(document_of(requests))).steps]
    order = [0, 1, 2, 4, 5, 3]  # nets before routes
    assert asked == [requests[at] for at in order]


@pytest.mark.requirement("HLD-import")
def test_everything_that_files_hold_is_written_and_read_again() -> None:
    requests: list[Request] = [
        NetMatch([Ip2netsRule("tcp", ["eth[0-1]", "ib*"], ["10.*.*.*"], Tunables(credits=3), "[0]")], True),
        RouteAdd("tcp9", "10.0.0.[1-2]@tcp", 2, 1, 3),
        RouterSet({"router_ping_timeout": 30}),
        RoutingSet(enable=True),
        BuffersSet(tiny=1, large=-1),
        PeerRefresh(["10.0.0.2@tcp", "10.0.1.[2-3]@tcp1"], "10.0.0.2@tcp", True, True),
        PeerRefresh([], "10.0.0.3@tcp", False),
        PeerAdd("10.0.0.4@tcp"),
        PeerRefresh(["10.0.0.5@tcp", "10.0.0.6@tcp"]),
        GlobalSet({"discovery": 0, "retry_count": 1}),
        UdspAdd(src="tcp", priority=1, weight=2, idx=0),
        UdspAdd(dst="10.0.0.*@tcp", rte="10.0.0.9@tcp"),
        SelectionAdd("net", net="tcp2", priority=0, side="local"),
        SelectionAdd("peer", local="10.0.0.1@tcp", remote="10.0.0.2@tcp"),
    ]
    text = emit_document(document_of(requests))
    assert yaml.safe_load(text)
    assert [step.request for step in read_config(text).steps] == requests

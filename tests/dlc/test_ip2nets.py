"""ip2nets: which of a host's interfaces rules choose, and what contradicts what the host has."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
from contextlib import suppress
from socket import AF_INET6

import pytest

from ulnet.core.status import LNetError
from ulnet.dlc.caller import Caller, Role
from ulnet.dlc.config import read_config
from ulnet.dlc.errors import DlcError
from ulnet.dlc.model import Ip2netsRule, NetMatch
from ulnet.dlc.modprobe import module_requests
from ulnet.host import Address, Link
from ulnet.node.admin.ip2nets import choose
from ulnet.node.dry_run import dry_run

HOST = [
    Link("lo", 1, addresses=(Address("127.0.0.1", 8),), loopback=True),
    Link("eth0", 2, addresses=(Address("192.158.19.3", 24),)),
    Link("eth1", 3, addresses=(Address("192.168.3.3", 24), Address("10.0.0.1", 8, label="eth1:1"))),
    Link("eth2", 4, addresses=(Address("10.0.0.2", 8),)),
    Link("eth3", 5, up=False, addresses=(Address("10.0.0.3", 8),)),
    Link("ib0", 6),
]


def chosen(rule: Ip2netsRule) -> list[tuple[str, str, str | None]]:
    return [(one.link.name, one.address.ip, one.cpts) for one in choose(rule, HOST)]


@pytest.mark.requirement("HLD-ip2nets", "HLD-expr")
@pytest.mark.parametrize(
    ("interfaces", "ranges", "expected"),
    [
        ([], ["192.168.*.3"], [("eth1", "192.168.3.3", None)]),
        ([], ["10.0.0.*"], [("eth1", "10.0.0.1", None), ("eth2", "10.0.0.2", None)]),
        ([], ["172.16.*.*"], []),
        (["eth0"], ["172.16.*.*"], []),  # the rule is for other hosts
        (["eth2"], ["10.0.0.*"], [("eth2", "10.0.0.2", None)]),
        (["eth2[0-1]"], ["10.0.0.0/8"], [("eth2", "10.0.0.2", "[0-1]")]),
        (["eth[2,1]"], ["10.0.0.*"], [("eth1", "10.0.0.1", None), ("eth2", "10.0.0.2", None)]),
        (["eth[0-9][1]"], ["10.*.*.*"], [("eth1", "10.0.0.1", "[1]"), ("eth2", "10.0.0.2", "[1]")]),
        (
            ["eth*"],
            ["*.*.*.*"],
            [("eth0", "192.158.19.3", None), ("eth1", "192.168.3.3", None), ("eth2", "10.0.0.2", None)],
        ),
        (["eth1", "eth*"], ["10.*.*.[1-2]"], [("eth1", "10.0.0.1", None), ("eth2", "10.0.0.2", None)]),
        ([], [], [("eth0", "192.158.19.3", None)]),  # as networks=tcp: the first
        (["eth1"], [], [("eth1", "192.168.3.3", None)]),
        (["eth1:1"], [], [("eth1", "10.0.0.1", None)]),
        (["eth1:1[0]"], ["10.*.*.*"], [("eth1", "10.0.0.1", "[0]")]),
    ],
)
def test_what_rules_choose(
    interfaces: list[str], ranges: list[str], expected: list[tuple[str, str, str | None]]
) -> None:
    assert chosen(Ip2netsRule("tcp", interfaces, ranges)) == expected


@pytest.mark.requirement("HLD-ip2nets")
@pytest.mark.parametrize(
    ("interfaces", "ranges", "number", "told"),
    [
        (
            ["eth0"],
            ["192.168.*.3"],
            22,
            "interface eth0 has 192.158.19.3: that does not match 192.168.*.3 of the rule for net tcp; "
            "name another interface or pattern",
        ),
        (["eth1", "eth0"], ["10.*.*.*"], 22, "interface eth0 has 192.158.19.3: that does not match 10.*.*.*"),
        (["eth3"], ["10.0.0.*"], 22, "interface eth3 has 10.0.0.3, and is down: that does not match"),
        (["ib0"], ["10.0.0.*"], 22, "interface ib0 has no address: that does not match"),
        (
            ["eth9"],
            ["10.0.0.*"],
            42,
            "no interface matches 'eth9': this host has lo, eth0, eth1, eth2, eth3, ib0",
        ),
        ([], ["10.0.0"], 22, "address '10.0.0' has not four parts"),
        (["eth[1-"], ["10.0.0.*"], 22, "interface 'eth[1-' is neither a name nor a pattern"),
    ],
)
def test_what_contradicts_the_host_is_refused(
    interfaces: list[str], ranges: list[str], number: int, told: str
) -> None:
    with pytest.raises(LNetError) as refused:
        chosen(Ip2netsRule("tcp", interfaces, ranges))
    assert refused.value.errno == number
    assert refused.value.text.startswith(told)


RULES = """\
ip2nets:
  - {net-spec: tcp, ip-range: {0: 192.168.*.*}}
  - {net-spec: tcp, ip-range: {0: 10.0.0.*}}
  - {net-spec: tcp1, ip-range: {0: 10.0.0.2}}
"""


@pytest.mark.requirement("HLD-ip2nets", "HLD-modparams")
async def test_in_yaml_the_first_rule_of_a_net_counts_in_a_string_all_add_up() -> None:
    async with dry_run(HOST) as admin:
        assert await admin.apply(read_config(RULES).steps) == []
        assert list(map(str, admin.node.core.nis)) == ["0@lo", "192.168.3.3@tcp", "10.0.0.2@tcp1"]
    async with dry_run(HOST) as admin:
        text = "tcp 192.168.*.*; tcp 10.0.0.*; tcp1 10.0.0.2"
        (request,) = module_requests({"ip2nets": text}).requests
        assert (await admin.handle(request)).errors == []
        nids = ["0@lo", "192.168.3.3@tcp", "10.0.0.2@tcp", "10.0.0.2@tcp1"]
        assert list(map(str, admin.node.core.nis)) == nids


@pytest.mark.requirement("HLD-ip2nets")
def test_an_ipv6_range_chooses_the_interface() -> None:
    both = Link("eth0", 2, addresses=(Address("10.0.0.1", 8), Address("fd00::1", 64, AF_INET6)))
    only = Link("eth1", 3, addresses=(Address("fd00::2", 64, AF_INET6),))
    rule = Ip2netsRule("tcp", [], ["fd00::/64"])
    assert [one.address.ip for one in choose(rule, [both, only])] == ["10.0.0.1", "fd00::2"]
    assert [one.address.ip for one in choose(rule, [both, only], True)] == ["fd00::1", "fd00::2"]


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ([Ip2netsRule(f"tcp{at}", [], ["*.*.*.*"]) for at in range(257)], "257 rules of ip2nets"),
        ([Ip2netsRule("tcp", [], ["10.0.0.*"] * 1025)], "1025 ranges of a rule"),
        ([Ip2netsRule("tcp"), Ip2netsRule("tcp1", ["eth1"] * 1025)], "1025 interfaces of a rule"),
    ],
    ids=["rules", "ranges", "interfaces"],
)
async def test_too_many_rules_are_refused_and_change_nothing(rules: list[Ip2netsRule], told: str) -> None:
    async with dry_run(HOST) as admin:
        with pytest.raises(DlcError, match=f"{told} are more than the") as refused:
            await admin.handle(NetMatch(rules))
        assert refused.value.errno == errno.ERANGE
        assert list(map(str, admin.node.core.nis)) == ["0@lo"]


async def test_a_node_goes_on_between_rules() -> None:
    """What runs meanwhile sees each rule's NI come."""
    async with dry_run(HOST) as admin:
        seen = set()
        request = NetMatch([Ip2netsRule(f"tcp{at}", [], ["192.168.*.*"]) for at in range(1, 257)])
        task = asyncio.create_task(admin.handle(request))
        while not task.done():
            await asyncio.sleep(0)
            seen.add(len(admin.node.core.nis))
        assert (await task).errors == []
        assert seen == set(range(1, 258))


async def test_what_was_done_for_a_caller_who_goes_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ulnet.audit")
    request = NetMatch([Ip2netsRule(f"tcp{at}", [], ["192.168.*.*"]) for at in range(1, 10)])
    async with dry_run(HOST) as admin:
        task = asyncio.create_task(admin.handle(request, Caller(0, 4711, Role.CHANGE)))
        while len(admin.node.core.nis) < 4:
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        (record,) = caplog.records
        line = json.loads(record.getMessage().removeprefix("audit: "))
        assert {name.partition(".tunables")[0] for name in line["changed"] if ".tunables" in name} == {
            f"192.168.3.3@tcp{at}" for at in range(1, 4)
        }
        (refused,) = line["refused"]
        assert refused.startswith("given up")

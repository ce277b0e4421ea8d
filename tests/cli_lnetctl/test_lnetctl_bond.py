"""Bonding by command: `net add --slaves` and `bond`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml

from support.daemon import Daemon
from ulnet.cli.lnetctl import main

Ask = Callable[[str], tuple[int, str, str]]
BOND = "127.0.0.2@bond"
SLAVES = ("127.0.0.2@tcp", "127.0.0.3@tcp1")


def asking(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Give lnetctl a command line, in this process."""

    def run(line: str) -> tuple[int, str, str]:
        code = main(["--socket", str(daemon.path), *line.split()])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def ask(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> Ask:
    """A daemon of this test's own answers; it has two NIs."""
    run = asking(daemon, capsys)
    for nid in SLAVES:
        assert run(f"net add --nid {nid}") == (0, "", "")
    return run


@pytest.fixture(scope="module")
def two_nis(lasting_daemon: Daemon) -> Daemon:
    for nid in SLAVES:
        assert lasting_daemon.lnetctl("net", "add", "--nid", nid).code == 0
    return lasting_daemon


@pytest.fixture
def ask_in_vain(two_nis: Daemon, capsys: pytest.CaptureFixture[str]) -> Ask:
    """For what is refused: the next test has the same daemon."""
    return asking(two_nis, capsys)


def shown(ask: Ask, words: str = "-v") -> dict[str, object]:
    code, out, _ = ask(f"net show --net bond0 {words}")
    assert not code
    ni: dict[str, object] = yaml.safe_load(out)["net"][0]["local NI(s)"][0]
    return ni


@pytest.mark.requirement("BOND-config", "BOND-util")
def test_a_bond_is_added_changed_switched_failed_over_and_deleted(ask: Ask) -> None:
    words = "--mode loadbalance --policy weights --weights 3,1 --bds 127.0.0.9@tcp --keepalive 0.5"
    assert ask(f"net add --net bond0 --slaves *@tcp,*@tcp1 {words}") == (0, "", "")
    assert shown(ask, "") == {"nid": BOND, "status": "up", "slaves": {0: SLAVES[0], 1: SLAVES[1]}}
    bond = shown(ask)["bond"]
    assert isinstance(bond, dict)
    assert list(bond.items())[:5] == [
        ("mode", "loadbalance"),
        ("policy", "weights"),
        ("weights", "3,1"),
        ("keepalive", 0.5),
        ("bds", {0: "127.0.0.9@tcp"}),
    ]
    assert ask(f"bond set --nid {BOND} --mode standby --failback stay") == (0, "", "")
    assert ask(f"bond failover --nid {BOND}") == (0, "", "")
    bond = shown(ask)["bond"]
    assert isinstance(bond, dict)
    assert (bond["active"], bond["failback"]) == (SLAVES[1], "stay")
    assert ask(f"bond off --nid {BOND} --slave {SLAVES[1]}") == (0, "", "")
    assert ask(f"bond on --nid {BOND} --slave {SLAVES[1]}") == (0, "", "")
    assert ask(f"bond set --nid {BOND} --slaves {SLAVES[0]}") == (0, "", "")
    assert shown(ask, "")["slaves"] == {0: SLAVES[0]}
    assert ask(f"net del --nid {BOND}") == (0, "", "")


@pytest.mark.requirement("BOND-config")
@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "net add --net tcp --if lo --mode standby",
            "--mode is for bonding NIs: name their slaves with --sla",
        ),
        ("net add --slaves @tcp", "no net is named: write --net bond0"),
        ("net add --net bond0 --slaves @tcp --if eth0", "--if is the slaves': leave it out with --slaves"),
        ("net add --net bond0 --slaves @tcp --weights x", "--weights 'x' is not a number"),
        ("net add --net bond0 --slaves @tcp --keepalive x", "--keepalive 'x' is not a number of seconds"),
        ("net add --net bond0 --slaves 0@lo", "0@lo is the loopback NI, which cannot be a slave"),
        ("bond set --mode standby", "no bonding NI is named: write --nid ADDR@bond0"),
        (f"bond on --nid {BOND}", "no slave is named: write --slave NID"),
        (f"bond failover --nid {BOND}", f"{BOND} is no bonding NI of this node: it has none"),
        (f"discover {BOND}", f"{BOND} is not discovered but resolved"),
    ],
)
def test_refusals_name_the_way_out(ask_in_vain: Ask, line: str, told: str) -> None:
    code, out, err = ask_in_vain(line)
    assert code
    assert told in (out + err).replace("''", "'")

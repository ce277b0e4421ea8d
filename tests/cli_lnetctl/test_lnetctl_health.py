"""Health by hand: `net set`, `peer set`, `debug recovery`, and what `show` and `stats` say of it."""

from __future__ import annotations

import time
from typing import Any

import pytest
import yaml

from support.daemon import Daemon
from support.shared import shared_path
from support.transcripts import read_steps

OWN, OTHER = "127.0.0.1@tcp", "127.0.1.1@tcp1"


def with_rails(daemon: Daemon) -> Daemon:
    for nid in (OWN, OTHER):
        assert daemon.lnetctl("net", "add", "--nid", nid).code == 0
    words = ("peer", "add", "--prim_nid", "127.0.0.9@tcp", "--nid", "127.0.1.9@tcp1")
    assert daemon.lnetctl(*words).code == 0
    return daemon


@pytest.fixture
def rails(daemon: Daemon) -> Daemon:
    return with_rails(daemon)


@pytest.fixture(scope="module")
def lasting_rails(lasting_daemon: Daemon) -> Daemon:
    """For what is refused: the next test has the same daemon."""
    return with_rails(lasting_daemon)


def recover_slowly(daemon: Daemon, slowly: bool) -> None:
    """A ping that is answered heals by 1 of 1000, or wholly: commands may come seconds late."""
    assert daemon.lnetctl("set", "health_sensitivity", "1" if slowly else "1000").code == 0


def nis(daemon: Daemon) -> dict[str, dict[str, Any]]:
    shown = yaml.safe_load(daemon.lnetctl("net", "show", "-v", "2").out)
    return {ni["nid"]: ni for net in shown["net"][1:] for ni in net["local NI(s)"]}


@pytest.mark.requirement("HEALTH-value", "HEALTH-stats", "hlt-005")
def test_net_set_health_changes_value_and_status_and_the_ni_recovers(rails: Daemon) -> None:
    recover_slowly(rails, True)
    assert rails.lnetctl("net", "set", "--nid", OWN, "--health", "0").code == 0
    shown = nis(rails)
    assert shown[OWN]["status"] == "down"
    assert shown[OWN]["health stats"]["health value"] < 100
    assert shown[OTHER]["status"] == "up"
    assert shown[OTHER]["health stats"]["health value"] == 1000
    recover_slowly(rails, False)
    deadline = time.monotonic() + 60
    while nis(rails)[OWN]["health stats"]["health value"] < 1000 and time.monotonic() < deadline:
        time.sleep(0.2)  # it pings itself through the driver: after 1, 2, ... seconds
    shown = nis(rails)
    assert shown[OWN]["status"] == "up"
    assert shown[OWN]["health stats"]["health value"] == 1000
    assert shown[OWN]["sent_stats"]["get"] > 0
    assert rails.lnetctl("debug", "recovery", "--local").out == ""


@pytest.mark.requirement("HEALTH-value")
def test_all_nis_are_set_at_once(rails: Daemon) -> None:
    assert rails.lnetctl("net", "set", "--all", "--health", "1000").code == 0
    assert {ni["health stats"]["health value"] for ni in nis(rails).values()} == {1000}


@pytest.mark.requirement("HEALTH-value", "HEALTH-monitor")
def test_peer_set_health_and_who_is_in_recovery(rails: Daemon) -> None:
    assert rails.lnetctl("peer", "set", "--nid", "127.0.1.9@tcp1", "--health", "400").code == 0
    peers = yaml.safe_load(rails.lnetctl("peer", "show", "-v", "2").out)["peer"]
    values = {ni["nid"]: ni["health stats"]["health value"] for peer in peers for ni in peer["peer ni"]}
    assert values == {"127.0.0.9@tcp": 1000, "127.0.1.9@tcp1": 400}
    assert rails.lnetctl("debug", "recovery", "--peer").out == ""  # never heard from: nobody pings it
    assert rails.lnetctl("peer", "set", "--all", "--health", "1000").code == 0
    recover_slowly(rails, True)
    assert rails.lnetctl("net", "set", "--nid", OWN, "--health", "10").code == 0
    listed = rails.lnetctl("debug", "recovery", "--local").out
    assert listed == f"Local NI recovery:\n      nid-0: {OWN}\n"


@pytest.mark.requirement("HEALTH-timeouts")
def test_the_time_out_of_a_driver_is_set_and_shown(rails: Daemon) -> None:
    assert rails.lnetctl("net", "set", "--net", "tcp", "--lnd-timeout", "20").code == 0
    assert {ni["lnd tunables"]["timeout"] for ni in nis(rails).values()} == {20}
    assert rails.lnetctl("net", "set", "--net", "tcp1", "--lnd-timeout", "21").code == 0  # it is the LND's
    assert {ni["lnd tunables"]["timeout"] for ni in nis(rails).values()} == {21}
    assert rails.lnetctl("net", "set", "--net", "tcp", "--lnd-timeout", "0").code == 0
    usual = yaml.safe_load(rails.lnetctl("global", "show").out)["global"]["lnd_timeout"]
    assert {ni["lnd tunables"]["timeout"] for ni in nis(rails).values()} == {usual}
    assert rails.lnetctl("net", "set", "--nid", OWN, "--conns-per-peer", "3").code == 0
    assert nis(rails)[OWN]["lnd tunables"]["conns_per_peer"] == 3
    assert nis(rails)[OTHER]["lnd tunables"]["conns_per_peer"] == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("net", "set"), "say which NIs are meant"),
        (("net", "set", "--all"), "nothing is to be set"),
        (("net", "set", "--all", "--nid", OWN, "--health", "1"), "say which NIs are meant"),
        (("net", "set", "--nid", OWN, "--health", "5000"), "--health 5000 is out of range: use 0 to 1000"),
        (("net", "set", "--nid", OWN, "--health", "banana"), "banana"),
        (
            ("net", "set", "--nid", "1.2.3.4@tcp", "--health", "5"),
            "1.2.3.4@tcp is not one of this node's NIDs",
        ),
        (("net", "set", "--nid", "0@lo", "--health", "5"), "0@lo is always well"),
        (("net", "set", "--net", "tcp"), "--net and --lnd-timeout go together"),
        (("net", "set", "--lnd-timeout", "5"), "--net and --lnd-timeout go together"),
        (("net", "set", "--net", "banana", "--lnd-timeout", "5"), "is no net with time-outs"),
        (("net", "set", "--net", "o2ib", "--lnd-timeout", "5"), "has no o2ib net"),
        (("net", "set", "--nid", OWN, "--conns-per-peer", "200"), "use 0 to 127"),
        (("peer", "set"), "say which peer NIs are meant"),
        (("peer", "set", "--all"), "nothing is to be set"),
        (("peer", "set", "--nid", "10.1.1.1@tcp", "--health", "5"), "no peer has the NID 10.1.1.1@tcp"),
        (("peer", "set", "--nid", "127.0.0.9@tcp", "--state", "1"), "--state cannot be set"),
        (("debug", "recovery"), "say whose recovery is meant"),
        (("debug", "peer"), "--nid must be specified"),
        (("debug", "peer", "--nid", "10.1.1.1@tcp"), "no peer has the NID"),
    ],
)
def test_bad_words_are_refused_and_change_nothing(
    lasting_rails: Daemon, words: tuple[str, ...], says: str
) -> None:
    done = lasting_rails.lnetctl(*words)
    assert done.code != 0
    assert says in done.err
    assert {ni["health stats"]["health value"] for ni in nis(lasting_rails).values()} == {1000}


@pytest.mark.requirement("HEALTH-stats", "dbg-020", "dbg-025")
def test_stats_reset_zeroes_those_of_nis_too(rails: Daemon) -> None:
    assert rails.lnetctl("ping", OWN).code == 0
    assert nis(rails)[OWN]["statistics"]["send_count"] > 0
    assert rails.lnetctl("stats", "reset").code == 0
    assert nis(rails)[OWN]["statistics"]["send_count"] == 0
    assert yaml.safe_load(rails.lnetctl("stats", "show").out)["statistics"]["send_count"] == 0


def test_the_layout_of_the_recovery_list_is_that_of_the_real_tool() -> None:
    text = shared_path("reference/04_failover.txt").read_text()
    assert "Peer NI recovery:\n      nid-0: 192.168.111.12@tcp\n" in text


@pytest.mark.requirement("HEALTH-value", "HEALTH-timeouts")
def test_settings_are_taken_and_refused_as_recorded(daemon: Daemon) -> None:
    """Exit codes and values of 14_set.txt, for all that is about health."""
    names: tuple[str, ...] = ("retry_count", "transaction_timeout", "health_sensitivity", "router_sens")
    names += ("recovery_interval", "response_tracking", "recovery_limit", "max_recovery_ping_interval")
    checked = 0
    for step in read_steps(shared_path("reference")):
        words = step.command.split()
        if (
            step.file == "14_set"
            and words[:2] == ["lnetctl", "set"]
            and words[2:]
            and words[2].startswith(names)
        ):
            done = daemon.lnetctl(*words[1:])
            assert done.code == step.code, (step.command, done.err)
            checked += 1
        elif step.file == "14_set" and step.command == "lnetctl global show" and checked > 15:
            wanted, got = (
                yaml.safe_load(text)["global"] for text in (step.out, daemon.lnetctl("global", "show").out)
            )
            for name in names:
                assert {k: v for k, v in got.items() if k.startswith(name)} == {
                    k: v for k, v in wanted.items() if k.startswith(name)
                }
            assert got["lnd_timeout"] == wanted["lnd_timeout"]
    assert checked > 25

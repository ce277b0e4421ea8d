"""Access lists of a daemon: who may ping it, push to it, and call at all, by NID and by interface."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import yaml

from e2e.test_secured_hosts import LNETD, SOON, Node, Site, pytestmark, site, soon
from support.netns import Host

__all__ = ["pytestmark", "site"]
DENIED = "the access lists here do not let its sender"


# Pings a node without end, and writes a byte for each: whether it was answered.
PINGING = """
import asyncio, sys
from ulnet import LNetError, Node
async def main():
    async with Node() as node:
        node.add_ni(sys.argv[1])
        node.core.settings.retry_count = 0
        while True:
            try:
                await node.ping(sys.argv[2], timeout=1)
                said = "+"
            except LNetError:
                said = "-"
            sys.stdout.write(said)
            sys.stdout.flush()
            await asyncio.sleep(0.02)
asyncio.run(main())
"""


class Pinging:
    """A program on a host that pings another one without end."""

    def __init__(self, site: Site, host: Host, target: Host) -> None:
        self.said = site.directory / f"pings{host.number}"
        with self.said.open("w") as out:
            words = (sys.executable, "-c", PINGING, host.nid(), target.nid())
            self.process = host.start(*words, stdout=out.fileno())

    @property
    def answered(self) -> int:
        """How many were, so far."""
        return self.said.read_text().count("+")

    @property
    def failed(self) -> int:
        """… and were not."""
        return self.said.read_text().count("-")


def known(node: Node, nid: str) -> list[str]:
    """The NIDs of the peer that has this one, as the node knows them."""
    shown: dict[str, Any] = yaml.safe_load(node.ctl("peer", "show")) or {}
    for peer in shown.get("peer", ()):
        nids = [one["nid"] for one in peer["peer ni"]]
        if nid in nids:
            return nids
    return []


def test_a_push_is_heard_of_those_who_may(site: Site) -> None:
    a, b, c = site.hosts
    node = site.begin(a, options=("--deny", f"push={b.nid()}"))
    asking = [site.begin(host) for host in (b, c)]
    for one in asking:
        one.ctl("net", "add", "--net", "tcp1", "--if", one.host.interface())
        one.ctl("discover", a.nid())
    soon(lambda: len(known(node, c.nid())) == 2)
    soon(lambda: DENIED in node.log.read_text())
    assert len(known(node, b.nid())) < 2
    assert f"bytes from {b.nid()} to portal 0," in node.log.read_text()
    assert asking[0].asks(a)  # it may ping


def test_a_ping_is_answered_to_those_who_may(site: Site) -> None:
    a, b, c = site.hosts
    site.begin(a, options=("--allow", f"ping={b.nid()}"))
    assert site.begin(b).asks(a)
    refused = site.begin(c)
    assert not refused.asks(a, "2")


def test_who_comes_by_an_interface_may_be_left_out(site: Site) -> None:
    a, b, _ = site.hosts
    node = site.begin(a, options=("--deny", a.interface(), "--log-level", "debug"))
    other = site.begin(b)
    assert not other.asks(a, "2")
    assert f"{b.nid()} is denied connect by '{a.interface()}'" in node.log.read_text()


@pytest.mark.parametrize("what", ["", "ping="])
def test_a_daemon_shuts_a_peer_out_under_traffic_and_lets_it_in_again(site: Site, what: str) -> None:
    """The other one's pings go on meanwhile, each of them."""
    a, b, c = site.hosts
    node = site.begin(a)
    foe, other = (Pinging(site, host, a) for host in (b, c))
    soon(lambda: min(foe.answered, other.answered) > 10)
    node.ctl("access", "add", "--deny", f"{what}{b.nid()}")
    answered, failed, going_on = foe.answered, foe.failed, other.answered
    soon(lambda: foe.failed > failed + 2 and other.answered > going_on + 10)
    assert foe.answered <= answered + 1  # one that was on its way
    if not what:
        soon(lambda: b.nid().partition("@")[0] not in a.run("ss", "-Htn", "state", "established").stdout)
    node.ctl("access", "del", "--deny", f"{what}{b.nid()}")
    answered = foe.answered
    soon(lambda: foe.answered > answered + 10)
    assert other.failed == 0
    for one in (foe, other):
        one.process.terminate()
    audited = [line for line in node.log.read_text().splitlines() if "audit: " in line]
    assert f'"deny":[null,["{what}{b.nid()}"]]' in audited[-2]
    assert f'"deny":[["{what}{b.nid()}"],null]' in audited[-1]


@pytest.mark.parametrize("rule", ["pings=10.0.0.1@tcp", "10.0.0.999@tcp"])
def test_a_rule_that_is_none_starts_nothing(site: Site, rule: str) -> None:
    done: subprocess.CompletedProcess[str] = site.hosts[0].run(
        *LNETD, "--socket", site.directory / "no.sock", "--allow", rule, check=False, timeout=SOON
    )
    assert done.returncode == 1
    assert f"allow '{rule}': " in done.stderr

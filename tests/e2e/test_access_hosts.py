"""Access lists of a daemon: who may ping it, push to it, and call at all, by NID and by interface."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import yaml

from e2e.test_secured_hosts import LNETD, SOON, Node, Site, pytestmark, site, soon

__all__ = ["pytestmark", "site"]
DENIED = "the access lists here do not let its sender"


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


@pytest.mark.parametrize("rule", ["pings=10.0.0.1@tcp", "10.0.0.999@tcp"])
def test_a_rule_that_is_none_starts_nothing(site: Site, rule: str) -> None:
    done: subprocess.CompletedProcess[str] = site.hosts[0].run(
        *LNETD, "--socket", site.directory / "no.sock", "--allow", rule, check=False, timeout=SOON
    )
    assert done.returncode == 1
    assert f"allow '{rule}': " in done.stderr

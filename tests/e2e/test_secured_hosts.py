"""Secured connections between daemons on hosts of their own: who is let in, and what the wire shows."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.netns import Cluster, Host
from ulnet.cli.pki import make_authority, make_node

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="ports below 1024 need root")
LNETD = [sys.executable, "-m", "ulnet.cli.lnetd"]
LNETCTL = [sys.executable, "-m", "ulnet.cli.lnetctl"]
SOON = 60.0  # seconds: a generous bound on what takes milliseconds
SHOWN_BY_PINGS = (b"gnip", b"ping")  # the magic of ping info, in both byte orders

# Has the address of another host for those who can be misled; hangs up on TLS, hears and keeps all the rest.
IN_THE_MIDDLE = """
import json, socket, sys
server = socket.create_server((sys.argv[1], 988))
print("ready", flush=True)
while True:
    sock, _ = server.accept()
    first = sock.recv(1)
    if first != b"\\x16":
        sock.settimeout(1)
        try:
            first += sock.recv(4096)
        except OSError:
            pass
    print(json.dumps(first.hex()), flush=True)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\\1\\0\\0\\0\\0\\0\\0\\0")
    sock.close()
"""


class Site:
    """An authority, hosts, and the daemons on them."""

    def __init__(self, hosts: Cluster, directory: Path) -> None:
        self.hosts = list(hosts)
        self.directory = directory
        make_authority(directory / "ca")

    def credentials(self, host: Host, *nids: str, ca: str = "ca", days: int = 90, name: str = "") -> Path:
        """A certificate for a host, in its directory."""
        out = self.directory / f"host{host.number}"
        make_node(self.directory / ca, out, list(nids or [host.nid()]), name or None, days)
        return out

    def begin(self, host: Host, security: str = "", options: tuple[str, ...] = ()) -> Node:
        """Start lnetd there."""
        out = self.directory / f"host{host.number}"
        words = ("--credentials", str(out)) if out.exists() else ()
        return Node(host, self.directory / f"{host.number}.sock", security, (*words, *options))


class Node:
    """lnetd on a host, with one NI."""

    def __init__(self, host: Host, socket: Path, security: str, options: tuple[str, ...]) -> None:
        self.host = host
        self.socket = socket
        self.log = socket.with_suffix(".log")
        with self.log.open("w") as log:
            self.process = host.start(*LNETD, "--socket", socket, *options, stderr=log.fileno())
        soon(lambda: "ready" in self.log.read_text())
        words = ("--security", security) if security else ()
        self.ctl("net", "add", "--net", "tcp", "--if", host.interface(), *words)

    def ctl(self, *words: str) -> str:
        """What lnetctl says, which must succeed."""
        return self.host.run(*LNETCTL, "--socket", self.socket, *words).stdout

    def asks(self, other: Host, timeout: str = "20") -> bool:
        """Whether a ping comes back."""
        words = ("ping", "--timeout", timeout, other.nid())
        done = self.host.run(*LNETCTL, "--socket", self.socket, *words, check=False)
        return done.returncode == 0

    def ni(self) -> dict[str, Any]:
        """Its NI as lnetctl shows it."""
        found = yaml.safe_load(self.ctl("net", "show", "-v", "--net", "tcp"))["net"][0]["local NI(s)"][0]
        assert isinstance(found, dict)
        return found


def soon(true: Callable[[], bool]) -> None:
    """Wait until something is true; it must be, long before the limit."""
    limit = time.monotonic() + SOON
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.05)


@pytest.fixture
def site(make_cluster: Callable[..., Cluster], tmp_path: Path) -> Site:
    return Site(make_cluster(hosts=3, rails=1), tmp_path)


def test_what_is_said_is_on_the_wire_of_plain_nets_alone(site: Site, tmp_path: Path) -> None:
    a, b = site.hosts[:2]
    for host in (a, b):
        site.credentials(host)
    left, right = site.begin(a), site.begin(b)
    seen = {}
    for word in ("off", "require"):
        for node in (left, right):
            node.ctl("net", "set", "--all", "--security", word)
        with a.capture(tmp_path / word, a.interface()):
            assert left.asks(b)
        seen[word] = any(magic in (tmp_path / word).read_bytes() for magic in SHOWN_BY_PINGS)
    assert seen == {"off": True, "require": False}
    ni = left.ni()
    assert ni["lnd tunables"]["security"] == "require"
    days = (datetime.fromisoformat(ni["certificate expires"]).timestamp() - time.time()) / 86400
    assert 88 < days <= 90
    exported = left.ctl("export", "--backup")
    left.ctl("net", "del", "--net", "tcp")
    restored = tmp_path / "restored.yaml"
    restored.write_text(exported)
    left.ctl("import", str(restored))
    assert left.ni()["lnd tunables"]["security"] == "require"
    assert left.asks(b)


def test_a_plain_node_is_let_in_where_security_is_offered_and_not_where_it_is_required(site: Site) -> None:
    a, b, plain = site.hosts
    site.credentials(a)
    site.credentials(b)
    offering, requiring, other = site.begin(a, "offer"), site.begin(b, "require"), site.begin(plain)
    assert offering.asks(plain) and other.asks(a) and offering.asks(b)
    assert not other.asks(b, "2") and not requiring.asks(plain, "2")
    soon(lambda: "takes secured connections only" in requiring.log.read_text())


@pytest.mark.parametrize("fault", ["authority", "expired"])
def test_whose_certificate_is_not_good_is_not_heard(site: Site, fault: str) -> None:
    a, b, _ = site.hosts
    site.credentials(a)
    site.credentials(b)
    make_authority(site.directory / "other")
    honest = site.begin(b, "require")
    foe = site.begin(a, "require")
    assert foe.asks(b)
    if fault == "authority":
        site.credentials(a, ca="other")
        (site.directory / "host1/ca.pem").write_bytes((site.directory / "ca/ca.pem").read_bytes())
        words = "its certificate is not good"
        soon(lambda: "was read anew" in foe.log.read_text())
    else:
        site.credentials(a, days=0)
        words = "certificate has expired"
        soon(lambda: "stays in use" in foe.log.read_text())  # it is taken by a node that begins with it alone
        foe.process.terminate()
        foe.process.wait(SOON)
        foe = site.begin(a, "require")
    honest.ctl("net", "del", "--net", "tcp")
    honest.ctl("net", "add", "--net", "tcp", "--if", b.interface(), "--security", "require")
    assert not foe.asks(b, "3")
    soon(lambda: words in honest.log.read_text())
    assert not honest.asks(a, "3")


def test_a_certificate_for_another_nid_does_not_take_the_place_of_a_good_one(site: Site) -> None:
    """Who connects in a NID that its certificate is not for: lnd/test_tcp_secure.py."""
    a, b, _ = site.hosts
    site.credentials(a)
    site.credentials(b)
    asked, asking = site.begin(b, "require"), site.begin(a, "require")
    assert asking.asks(b)
    site.credentials(a, "10.0.0.77@tcp")
    soon(lambda: f"is not for {a.nid()}: that read before stays in use" in asking.log.read_text())
    asked.ctl("net", "del", "--net", "tcp")
    asked.ctl("net", "add", "--net", "tcp", "--if", b.interface(), "--security", "require")
    assert asking.asks(b) and asked.asks(a)


def test_who_strips_the_offer_of_tls_hears_nothing_of_known_nodes(site: Site) -> None:
    """ARP leads A to somebody in the middle, who hangs up on TLS as kernel nodes do."""
    a, b, middle = site.hosts
    site.credentials(a)
    site.credentials(b)
    left, right = site.begin(a, "offer"), site.begin(b, "offer")
    assert left.asks(b)
    middle.run("ip", "address", "add", f"{b.address()}/32", "dev", "lo")
    foe = middle.start(sys.executable, "-c", IN_THE_MIDDLE, b.address())
    assert foe.stdout is not None
    assert b"ready" in foe.stdout.readline()
    mac = middle.run("cat", f"/sys/class/net/{middle.interface()}/address").stdout.strip()
    a.run("ip", "neigh", "replace", b.address(), "lladdr", mac, "dev", a.interface(), "nud", "permanent")
    right.ctl("net", "del", "--net", "tcp")
    a.run("ss", "-K", "dst", b.address(), check=False)
    assert not left.asks(b, "8")
    foe.terminate()
    heard = [bytes.fromhex(json.loads(line)) for line in foe.stdout.read().splitlines()]
    assert heard and set(heard) == {b"\x16"}


def test_new_certificates_are_taken_while_messages_go(site: Site) -> None:
    a, b, _ = site.hosts
    site.credentials(a)
    site.credentials(b, days=1)
    left, right = site.begin(a, "require"), site.begin(b, "require")
    before = right.ni()["certificate expires"]
    answers = [left.asks(b)]
    site.credentials(b, days=60, name="renewed")
    while right.ni()["certificate expires"] == before:
        answers.append(left.asks(b))
    b.run("ss", "-K", "dst", a.address(), check=False)
    for _ in range(5):
        answers.append(left.asks(b))
    assert all(answers)
    assert "was read anew" in right.log.read_text()
    until = datetime.fromisoformat(right.ni()["certificate expires"]).timestamp()
    assert until - time.time() > 50 * 86400

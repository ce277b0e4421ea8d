"""`ulnet fleet` over ssh: two hosts with OpenSSH's server and an lnetd each, asked from a third."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from support.daemon import PATIENCE, SOURCE, Daemon, Done, environment
from support.netns import Cluster, Host, Popen

NAMES = ("oss1", "oss2")
_SCRIPTS = Path(sys.executable).parent
_DEBIAN = Path(sys.prefix) / "debian" / "usr"  # packages as setup unpacks them
_SERVER = """\
ListenAddress {address}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
PermitRootLogin yes
StrictModes no
UsePAM no
SetEnv ULNET_SOCKET={socket} PYTHONPATH={source} PATH={path}
"""
_CLIENT = """\
Host {name}
  HostName {address}
  HostKeyAlias {name}
  User root
  IdentityFile {folder}/user
  UserKnownHostsFile {folder}/known
  BatchMode yes
  ControlMaster auto
  ControlPath {folder}/%n
  ControlPersist 60
"""
# As root the server wants a user of its own and a folder in /run: these mounts are seen by it alone.
_ALONE = """\
mount --bind "$1/passwd" /etc/passwd && mount --bind "$1/shadow" /etc/shadow &&
mount -t tmpfs none /run && mkdir -m 755 /run/sshd && exec "$2" -D -e -f "$3"
"""


@pytest.fixture
def server() -> Path:
    """OpenSSH's server, from PATH or from Debian's package as setup unpacks it."""
    for tool in ("ssh", "ssh-keygen"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not here (Debian: apt-get install openssh-client)")
    found = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:{_DEBIAN / 'sbin'}")
    if found is None:
        pytest.skip("sshd is not here: install Debian's openssh-server, or let `make dev` unpack it")
    return Path(found)


def run(*words: str | Path) -> None:
    subprocess.run(list(map(str, words)), check=True, capture_output=True, timeout=PATIENCE)


class Site:
    """A host from which two others are reached by ssh as `oss1` and `oss2`, each with an lnetd."""

    def __init__(self, cluster: Cluster, server: Path, folder: Path, stack: ExitStack) -> None:
        *self.nodes, self._from = cluster.hosts
        self._folder, self._server = folder, server
        self.servers: dict[str, Popen] = {}
        self.daemons: dict[str, Daemon] = {}
        for name in ("host", "user"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", folder / name)
        (folder / "passwd").write_text(
            f"root:x:0:0::{folder}:/bin/sh\nsshd:x:65534:65534::/run/sshd:/bin/false\n"
        )
        (folder / "shadow").write_text("root:*:20000:0:99999:7:::\n")
        key = (folder / "host.pub").read_text()
        with (folder / "client").open("w") as client, (folder / "known").open("w") as known:
            for name, host in zip(NAMES, self.nodes, strict=True):
                client.write(_CLIENT.format(name=name, address=host.address(), folder=folder))
                known.write(f"{name} {key}")
                self._start(name, host)
                stack.callback(self._hang_up, name)
                daemon = self.daemons[name] = Daemon(folder / f"{name}.sock", before=host.words())
                stack.callback(daemon.end)
                for rail in range(2):
                    assert daemon.lnetctl("net", "add", "--nid", host.nid(rail, f"tcp{rail or ''}")).code == 0
        assert self.daemons["oss1"].lnetctl("discover", self.nodes[1].nid()).code == 0
        self.ssh = {name: f"ssh -F {folder / 'client'} {name}" for name in NAMES}

    def _start(self, name: str, host: Host) -> None:
        config = self._folder / f"{name}.conf"
        path = f"{_SCRIPTS}:{os.environ['PATH']}"
        words = {"address": host.address(), "folder": self._folder, "socket": self._folder / f"{name}.sock"}
        config.write_text(_SERVER.format(**words, source=SOURCE, path=path))
        libraries = ":".join(map(str, sorted((_DEBIAN / "lib").glob("*-linux-gnu"))))
        command = ["sh", "-c", _ALONE, "sh", str(self._folder), str(self._server), str(config)]
        server = host.start(*command, env={**os.environ, "LD_LIBRARY_PATH": libraries})
        assert server.stderr is not None
        said = server.stderr.readline()
        assert b"listening" in said, said + server.stderr.read()
        self.servers[name] = server

    def _hang_up(self, name: str) -> None:
        words = [*self.ssh[name].split(), "-O", "exit"]
        subprocess.run(words, capture_output=True, check=False, timeout=PATIENCE)

    def fleet(self, nodes: dict[str, object], *words: str) -> Done:
        path = self._folder / "fabric.yaml"
        path.write_text(yaml.safe_dump({"nodes": nodes}))
        command = [sys.executable, "-m", "ulnet", "fleet", str(path), "--between", "0.1", *words]
        done = subprocess.run(
            self._from.words(*command),
            env=environment(), capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def site(make_cluster: Callable[..., Cluster], server: Path) -> Iterator[Site]:
    with ExitStack() as stack:  # a short path: there are sockets in it
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ulnet-ssh-"))
        yield Site(make_cluster(3, 2), server, Path(folder), stack)


def test_what_differs_is_seen_by_ssh(site: Site) -> None:
    """One node by `lnetctl` there and one by its socket here; the MTUs of both by `ip` there."""
    site.nodes[0].run("ip", "link", "set", "rail0", "mtu", "1400")
    assert site.daemons["oss1"].lnetctl("set", "discovery", "0").code == 0
    other = {"socket": str(site.daemons["oss2"].path), "host": site.ssh["oss2"]}
    done = site.fleet({"oss1": f"{site.ssh['oss1']} lnetctl", "oss2": other}, "--strict")
    assert done == Done(
        1,
        "oss1  OK: 2 NIs up on 2 nets, 0 peers\n"
        "oss2  OK: 2 NIs up on 2 nets, 0 peers\n"
        "\n"
        "warning: oss1 and oss2: discovery is 0 on oss1, 1 on oss2: rails of nodes where it is 0 are found "
        "by none, and these find none\n"
        "warning: oss1 and oss2: net tcp: MTU is 1400 on oss1 (rail0), 1500 on oss2 (rail0): packets of the "
        "greater size get lost between them\n",
        "",
    )


def test_an_ssh_that_is_refused_or_hangs_is_told(site: Site) -> None:
    server = site.servers["oss1"]
    nodes: dict[str, object] = {
        "hung": f"{site.ssh['oss1']} lnetctl",
        "refused": f"{site.ssh['oss2']} -p 23 lnetctl",
        "well": {"socket": str(site.daemons["oss2"].path)},
    }
    server.send_signal(signal.SIGSTOP)  # connections are taken, and nobody says a word
    try:
        done = site.fleet(nodes, "--timeout", "1")
    finally:
        server.send_signal(signal.SIGCONT)
    assert done.code == 1
    assert "oss1 lnetctl hung: it is tried again in 1 s" in done.out
    assert f"connect to host {site.nodes[1].address()} port 23: Connection refused" in done.out
    assert "well     OK: 2 NIs up on 2 nets" in done.out

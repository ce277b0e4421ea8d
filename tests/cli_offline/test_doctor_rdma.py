"""`ulnet doctor` on RDMA: each trouble by values made by hand, and a tree like sysfs that is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ulnet.cli.doctor_rdma import diagnose_rdma
from ulnet.cli.ulnet import main
from ulnet.host import Address, Link
from ulnet.host.rdma_facts import RdmaFacts, RdmaPort, rdma_facts

pytestmark = pytest.mark.requirement("LND-o2ib")
ETH0 = Link("eth0", 2, addresses=(Address("10.0.0.1", 24),))
PORT = RdmaPort("rxe0", 1, "ACTIVE", "Ethernet", ("eth0",), 1)


def told(facts: RdmaFacts, *links: Link, wanted: bool = False) -> list[tuple[str, str, str]]:
    found = diagnose_rdma(facts, links or (ETH0,), wanted)
    return [(one.level, one.where, one.text) for one in found]


def test_a_host_that_is_well_and_one_without_devices() -> None:
    assert told(RdmaFacts([PORT])) == []
    assert told(RdmaFacts([], manager=False, missing=("libibverbs.so.1",), locked=0)) == []
    ((level, where, text),) = told(RdmaFacts([]), wanted=True)
    assert (level, where) == ("error", "rdma")
    assert "modprobe rdma_rxe" in text


@pytest.mark.parametrize(
    ("state", "words"),
    [("INIT", "opensm"), ("DOWN", "cable"), ("ARMED", "subnet manager"), ("NOP", "nothing"), ("", "unknown")],
)
def test_ports_that_are_not_active(state: str, words: str) -> None:
    ((level, where, text),) = told(RdmaFacts([replace(PORT, state=state)]))
    assert (level, where) == ("warning", "rxe0/1")
    assert words in text


def test_what_is_missing_and_how_to_mend_it() -> None:
    found = told(RdmaFacts([PORT], manager=False, missing=("librdmacm.so.1",), locked=8 << 20))
    assert [(level, where) for level, where, _ in found] == [
        ("error", "rdma"),
        ("error", "rdma"),
        ("warning", "memlock"),
    ]
    words = " ".join(text for *_, text in found)
    assert all(one in words for one in ("apt-get install rdma-core", "modprobe rdma_ucm", "8192 KiB"))
    assert told(RdmaFacts([PORT], locked=1 << 30)) == []


def test_addresses_and_gids_of_roce() -> None:
    bare = Link("eth0", 2, addresses=(Address("fe80::1", 64),))
    assert "no IPv4 address" in told(RdmaFacts([PORT]), bare)[0][2]
    assert "RoCE v2 GID" in told(RdmaFacts([replace(PORT, ipv4_gids=0)]))[0][2]
    infiniband = RdmaPort("mlx5_0", 1, "ACTIVE", "InfiniBand", ("ib0",))
    assert told(RdmaFacts([infiniband]), bare) == []


def test_sysfs_is_read(tmp_path: Path) -> None:
    port = tmp_path / "class/infiniband/rxe0/ports/1"
    (port / "gids").mkdir(parents=True)
    for kind in ("types", "ndevs"):
        (port / "gid_attrs" / kind).mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")
    (port / "link_layer").write_text("Ethernet\n")
    for at, gid in enumerate(
        ("fe80:0000:0000:0000:5054:00ff:fe00:0001", "0000:0000:0000:0000:0000:ffff:0a00:0001")
    ):
        (port / f"gids/{at}").write_text(f"{gid}\n")
        (port / f"gid_attrs/types/{at}").write_text("RoCE v2\n")
        (port / f"gid_attrs/ndevs/{at}").write_text("eth0\n")
    found = rdma_facts(tmp_path / "class", tmp_path)
    assert found.ports == [PORT]
    assert not found.manager
    (tmp_path / "infiniband").mkdir()
    (tmp_path / "infiniband/rdma_cm").touch()
    assert rdma_facts(tmp_path / "class", tmp_path).manager


def test_the_command_has_the_word(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["doctor", "--rdma", "--json"])
    text = capsys.readouterr().out
    assert status in (0, 1)
    assert "RDMA" in text or Path("/sys/class/infiniband").exists()

"""`ulnet decode` on every capture of real nodes: what is known of them, and tshark's count of messages."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from capture.packets import VECTORS
from ulnet.capture import Decoder, Event
from ulnet.cli.decode import main
from ulnet.wire.lnet import LNET_MTU

ALL = sorted(VECTORS.glob("*.pcap"))
NAMES = {0: "ACK", 1: "PUT", 2: "GET", 3: "REPLY"}


def events(name: str) -> list[Event]:
    (path,) = VECTORS.glob(f"{name}*.pcap")
    with path.open("rb") as file:
        return list(Decoder().events(file))


def of_kind(found: list[Event], kind: str) -> list[dict[str, Any]]:
    return [event.saying.facts for event in found if event.saying.kind == kind]


def messages(name: str) -> list[dict[str, Any]]:
    return of_kind(events(name), "message")


def sequences(name: str, kind: str = "PUT") -> list[tuple[str, int]]:
    return [
        (facts["src_nid"], facts["ping_info"]["sequence"])
        for facts in messages(name)
        if facts["type"] == kind and "ping_info" in facts
    ]


def test_the_vectors_are_here() -> None:
    assert len(ALL) == 12


def test_first_contact_makes_three_connections() -> None:
    found = events("a_")
    assert [facts["nid"] for facts in of_kind(found, "connection-request")] == ["192.168.110.12@tcp"] * 3
    hellos = [event for event in found if event.saying.kind == "hello"]
    spoken = [(event.src.port, event.dst.port, event.saying.facts["type"]) for event in hellos]
    assert spoken == [
        (1023, 988, "CONTROL"),
        (988, 1023, "CONTROL"),
        (1022, 988, "BULK_IN"),
        (988, 1022, "BULK_OUT"),
        (1021, 988, "BULK_OUT"),
        (988, 1021, "BULK_IN"),
    ]
    get, reply = messages("a_")
    assert (get["type"], get["portal"], get["match_bits"]) == ("GET", 0, "0x8000000000000000")
    assert (reply["type"], reply["payload"], reply["md"]) == ("REPLY", 48, get["md"])


def test_ping_both_ways_on_open_connections() -> None:
    assert [(facts["type"], facts["src_nid"][-6:-4]) for facts in messages("b_")] == [
        ("GET", "11"), ("REPLY", "12"), ("GET", "12"), ("REPLY", "11")
    ]  # fmt: skip
    assert not of_kind(events("b_"), "resumed")


def test_discovery_pushes_both_ways() -> None:
    kinds = [facts["type"] for facts in messages("c_")]
    assert kinds == ["GET", "REPLY", "PUT", "ACK", "PUT", "ACK"]
    assert [facts["mlength"] for facts in messages("c_") if facts["type"] == "ACK"] == [48, 48]


def test_the_second_rail_carries_the_push() -> None:
    assert sequences("c2_") == [("192.168.110.11@tcp", 3), ("192.168.111.12@tcp", 3)]
    nis = [facts["ping_info"]["nis"] for facts in messages("c2_") if "ping_info" in facts]
    assert all(len(entries) == 2 and {entry["status"] for entry in entries} == {"up"} for entries in nis)


def test_an_ni_added_and_deleted_is_pushed() -> None:
    assert sequences("d_") == [
        ("192.168.111.12@tcp", 3),
        ("192.168.110.12@tcp", 4),
        ("192.168.111.12@tcp", 5),
        ("192.168.111.11@tcp", 3),
    ]
    closed = [event for event in events("d_") if event.saying.kind == "closed"]
    assert {str(event.src) for event in closed} >= {f"192.168.111.12:{port}" for port in (1021, 1022, 1023)}


def test_selftest_speaks_on_its_portals() -> None:
    portals = Counter(facts["portal"] for facts in messages("e1_"))
    assert portals == {50: 10, 51: 4, 52: 14}
    assert {facts["payload"] for facts in messages("e1_")} == {160}


def test_keepalives() -> None:
    found = events("g_")
    assert [event.saying.text for event in found] == ["NOOP  keepalive"] * 3
    assert all(event.dst.port in (1021, 1022, 1023) for event in found)


def test_large_nids() -> None:
    found = events("j_")
    assert {facts["version"] for facts in of_kind(found, "hello")} == {4}
    assert {facts["version"] for facts in of_kind(found, "connection-request")} == {2}
    infos = [facts["ping_info"] for facts in messages("j_") if "ping_info" in facts]
    assert {info["features_bits"] for info in infos} == {"0x7e"}
    assert infos[0]["features"] == [
        "NI_STATUS", "RTE_DISABLED", "MULTI_RAIL", "DISCOVERY", "LARGE_ADDR", "PRIMARY_LARGE"
    ]  # fmt: skip
    assert [ni["nid"] for ni in infos[-1]["nis"]] == ["fd00:110::12@tcp", "fd00:111::12@tcp"]


def test_o2iblnd() -> None:
    found = events("k0_")
    assert [event.saying.text.partition(":")[0].partition(" 192")[0] for event in found] == [
        "CM request", "CM reply", "CM ready to use", "IMMEDIATE GET  ", "IMMEDIATE REPLY"
    ]  # fmt: skip
    assert [facts["o2ib"] for facts in of_kind(found, "cm")[:2]] == ["CONNREQ", "CONNACK"]
    reply = messages("k0_")[1]
    assert [ni["nid"] for ni in reply["ping_info"]["nis"]] == ["192.168.110.12@o2ib"]


def test_release_2_15_speaks_the_same() -> None:
    assert Counter(facts["type"] for facts in messages("m_")) == {"GET": 3, "REPLY": 3, "PUT": 2, "ACK": 2}


def test_odd_peers_are_described() -> None:
    text = "\n".join(event.saying.text for event in events("i_"))
    for words in (
        "connection request of version 7; known are 1 and 2",
        "refused: speaks connection request v1 only",
        "not LNet: begins with efbeadde",
        "HELLO of version 0x5; known are",
        "(refused: try again later)",
        "HELLO v1 CONTROL 192.168.110.4@tcp",
        "HELLO v2 CONTROL 192.168.110.2@tcp",
        "HELLO v3 type 9, which does not exist,",
        "connection request v1 for 192.168.110.12@tcp, big-endian",
        "message of unknown type 9",
        "lost the thread: frame of type 0xc5",
        "push, 2097152 B, ACK to md 0xdef, more than LNet allows",
        "20 bytes are too few for ping info",
        "closes in the middle of a connection request: 2 B missing",
    ):
        assert words in text, words
    answered = [facts for facts in of_kind(events("i2_"), "noop") if facts["cookies"] == ["0x0", "0x5"]]
    assert len(answered) == 2  # zero-copy acknowledgements, on the peers that have our BULK_OUT


# tshark's dissector knows 72-byte headers only, so it cannot judge the capture with large NIDs.
@pytest.mark.parametrize("path", [path for path in ALL if path.name[:2] != "j_"], ids=lambda path: path.stem)
def test_tshark_counts_the_same_messages(path: Path) -> None:
    if not shutil.which("tshark"):
        pytest.skip("tshark is not installed (apt install tshark)")
    command = ["tshark", "-r", str(path), "-Y", "lnet", "-T", "fields", "-e", "lnet.msg_type"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    theirs = Counter(int(value, 0) for value in done.stdout.replace(",", "\n").split())
    # It counts a message when its payload has come, which that of a refused 2 MiB PUT never does.
    ours = Counter(facts["type"] for facts in messages(path.stem) if facts["payload"] <= LNET_MTU)
    assert {name: theirs[number] for number, name in NAMES.items()} == {
        name: ours[name] for name in NAMES.values()
    }


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_every_capture_reads_well(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(path)]) == 0
    text = capsys.readouterr()
    assert main(["--json", str(path)]) == 0
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    lines = text.out.splitlines()
    assert text.err == ""
    assert len(lines) == len(objects) > 0
    times = [entry["time"] for entry in objects]
    assert times == sorted(times)
    for line, entry in zip(lines, objects, strict=True):
        assert line.startswith(f"{entry['time']:11.6f}  ")
        assert f"{entry['src']} → {entry['dst']}" in line and line.endswith(entry["text"])
        assert all(key in entry for key in ("event", "time", "src", "dst"))


def test_columns_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    main([str(VECTORS / "a_connect_and_ping_1rail.pcap")])
    lines = capsys.readouterr().out.splitlines()
    assert len({line.index(" → ") for line in lines}) == 1
    assert lines[3] == (
        "   0.044392  192.168.110.11:1023 → 192.168.110.12:988   "
        "GET   192.168.110.11@tcp → 192.168.110.12@tcp  ping, up to 3960 B, md 0xd"
    )


def program() -> str:
    paths = [path for path in sys.path if path]
    start = f"import sys; sys.path[:0] = {paths!r}"
    return f"{start}; from ulnet.cli.ulnet import main; sys.exit(main(['decode', *sys.argv[1:]]))"


def run(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", program(), *words], capture_output=True, check=False, **options
    )


def test_help_has_an_example() -> None:
    done = run("--help")
    assert done.returncode == 0 and b"ulnet decode lnet.pcap" in done.stdout


def test_standard_input() -> None:
    path = VECTORS / "b_ping_existing_conn.pcap"
    assert run("-", input=path.read_bytes()).stdout == run(path).stdout != b""


def test_a_terminal_without_arrows() -> None:
    done = run(VECTORS / "b_ping_existing_conn.pcap", env={"PYTHONIOENCODING": "ascii"})
    assert b"192.168.110.11:1023 -> 192.168.110.12:988" in done.stdout and b"?" not in done.stdout


def test_a_file_that_ends_early_is_decoded_so_far_and_fails(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    cut.write_bytes((VECTORS / "b_ping_existing_conn.pcap").read_bytes()[:700])
    done = run(cut)
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 3
    assert done.stderr.decode().startswith(f"ulnet decode: {cut}: the file ends in the middle of packet ")
    assert b"Traceback" not in done.stderr and done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", b"the file is empty"), (b"#!/bin/sh\n" * 50, b"the file is no capture"), (None, b"No such file")],
)
def test_a_file_that_is_none_fails_in_one_sentence(
    tmp_path: Path, content: bytes | None, words: bytes
) -> None:
    path = tmp_path / "odd.pcap"
    if content is not None:
        path.write_bytes(content)
    done = run(path)
    assert (done.returncode, done.stdout) == (1, b"")
    assert words in done.stderr and done.stderr.count(b"\n") == 1
    assert run(tmp_path).returncode == 1  # a directory


def test_a_capture_without_lnet_says_so(tmp_path: Path) -> None:
    data = (VECTORS / "b_ping_existing_conn.pcap").read_bytes()
    (tmp_path / "none.pcap").write_bytes(data[:24])
    done = run(tmp_path / "none.pcap")
    assert done.returncode == 0 and b"no LNet in 0 packets" in done.stderr


def test_packets_captured_in_part_are_mentioned(tmp_path: Path) -> None:
    data = bytearray((VECTORS / "b_ping_existing_conn.pcap").read_bytes())
    data[36:40] = (5000).to_bytes(4, "little")  # how long the first packet was on the wire
    (tmp_path / "part.pcap").write_bytes(data)
    done = run(tmp_path / "part.pcap")
    assert done.returncode == 0
    assert b"1 of 7 packets were captured only in part; capture with tcpdump -s 0" in done.stderr


def test_a_reader_that_leaves_early_is_no_error() -> None:
    path = VECTORS / "i_raw_probes_from_host.pcap"
    pipe = subprocess.run(
        ["sh", "-c", '"$0" -c "$1" "$2" | head -1', sys.executable, program(), path],
        capture_output=True,
        check=False,
    )
    assert pipe.stdout.count(b"\n") == 1 and pipe.stderr == b""

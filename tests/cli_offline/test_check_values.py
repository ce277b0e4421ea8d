"""`ulnet check`: what nodes take, and what does not do what it seems to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from ulnet.cli.ulnet import main

SERVER = """\
net:
    - net type: tcp
      local NI(s): [{nid: 10.0.0.1@tcp, interfaces: {0: eth0}}]
    - net type: tcp1
      local NI(s): [{nid: 10.1.0.1@tcp1, interfaces: {0: eth1}}]
"""
CLIENT = SERVER.replace(".0.1@", ".0.2@")


def check(folder: Path, capsys: pytest.CaptureFixture[str], *texts: str) -> tuple[int, list[str]]:
    names = []
    for at, text in enumerate(texts, 1):
        (folder / f"node{at}").write_text(text)
        names.append(str(folder / f"node{at}"))
    status = main(["check", *names])
    return status, capsys.readouterr().out.replace(f"{folder}/", "").splitlines()


def test_more_credits_for_a_peer_than_the_ni_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for credits, count in (("peer_credits: 900", 256), ("peer_credits: 9, credits: 8", 8)):
        text = SERVER.replace("{0: eth0}", "{0: eth0}, tunables: {" + credits + "}")
        status, lines = check(tmp_path, capsys, text)
        assert (status, len(lines)) == (0, 1)
        assert lines[0].startswith("node1:3: warning: peer_credits") and f"credits, {count}" in lines[0]
    for credits in ("peer_credits: 256", "peer_credits: 9, credits: 9", "peer_credits: -1, credits: -1"):
        text = SERVER.replace("{0: eth0}", "{0: eth0}, tunables: {" + credits + "}")
        assert check(tmp_path, capsys, text) == (0, ["1 file: nothing wrong"])


def test_nids_that_a_peer_lists_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    peer = "peer:\n    - primary nid: 10.0.0.9@tcp\n"
    peer += "      peer ni: [{nid: 10.0.0.9@tcp}, {nid: 10.1.0.9@tcp1}%s]\n"
    assert check(tmp_path, capsys, SERVER + peer % "") == (0, ["1 file: nothing wrong"])
    status, lines = check(tmp_path, capsys, SERVER + peer % ", {nid: 10.1.0.9@tcp1}")
    assert (status, lines) == (
        0,
        [
            "node1:7: warning: peer 10.0.0.9@tcp lists 10.1.0.9@tcp1 twice: once counts; "
            "write the NID that was meant, or leave it out"
        ],
    )
    ranges = "peers:\n    - nids: {0: '10.0.0.[8-9]@tcp', 1: 10.1.0.9@tcp1, 2: 10.0.0.9@tcp}\n"
    status, lines = check(tmp_path, capsys, SERVER + ranges)
    assert status == 0 and "this peer lists 10.0.0.9@tcp twice" in lines[0]


def test_policies_for_nis_that_are_not_there_are_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = "udsp:\n" + "".join(
        f"    - {{src: '{src}', action: {{priority: 0}}}}\n"
        for src in ("tcp", "10.1.0.*@tcp1", "tcp7", "10.1.0.[2-9]@tcp1")
    )
    rules += "    - {dst: tcp9, action: {priority: 0}}\n"  # peers may come
    status, lines = check(tmp_path, capsys, SERVER + rules)
    assert status == 0
    assert [line.partition(" of this policy")[0] for line in lines[:-1]] == [
        "node1:9: note: src tcp7",
        "node1:10: note: src 10.1.0.[2-9]@tcp1",
    ]
    by_name = SERVER.replace("nid: 10.0.0.1@tcp, ", "").replace("nid: 10.1.0.1@tcp1, ", "")
    status, lines = check(tmp_path, capsys, by_name + rules)  # addresses are not known then
    assert [line[:24] for line in lines[:-1]] == ["node1:9: note: src tcp7 "]


@pytest.mark.requirement("doc-010")
def test_a_node_with_two_rails_that_is_a_peer_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    peer = "peer:\n    - {primary nid: 10.0.0.2@tcp, Multi-Rail: False}\n"
    status, lines = check(tmp_path, capsys, SERVER + peer, CLIENT)
    assert (status, len(lines)) == (0, 1)
    assert lines[0].startswith("node1:7: warning: peer 10.0.0.2@tcp is Multi-Rail: False here, but node2 has")
    far = CLIENT.replace("tcp1", "tcp2")  # its other NI is on a net that node1 is not on
    assert check(tmp_path, capsys, SERVER + peer, far) == (0, ["2 files: nothing wrong"])


def test_a_gateway_that_is_in_none_of_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    router = SERVER.replace(".0.1@", ".0.9@") + "routing: {enable: 1}\n"
    only_tcp = SERVER.partition("    - net type: tcp1")[0]
    route = "route:\n    - {net: tcp1, gateway: 10.0.0.8@tcp}\n"
    other = only_tcp.replace(".0.1@", ".0.3@") + route.replace(".8@", ".9@")
    status, lines = check(tmp_path, capsys, only_tcp + route, router, other)
    strange = [line for line in lines if "node of none of these files" in line]
    assert (status, len(strange)) == (0, 1)
    assert strange[0].startswith("node1:5: note: gateway 10.0.0.8@tcp of the route to tcp1")
    assert check(tmp_path, capsys, only_tcp + route) == (0, ["1 file: nothing wrong"])
    status, lines = check(tmp_path, capsys, only_tcp + route, router)  # perhaps the routers are not all here
    assert not any("none of these files" in line for line in lines)


@pytest.mark.parametrize("net", ["tcp1", "o2ib"])
def test_a_nid_under_a_net_that_it_is_not_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], net: str
) -> None:
    for text in (
        f"net:\n    - net type: tcp\n      local NI(s): [{{nid: 10.0.0.1@{net}, interfaces: {{0: eth0}}}}]\n",
        f"net:\n    - {{net: tcp, nid: 10.0.0.1@{net}, interfaces: {{0: eth0}}}}\n",
        f"net:\n    - {{net: tcp, nid: 10.0.0.1@{net}}}\n",
    ):
        status, lines = check(tmp_path, capsys, text)
        assert (status, len(lines)) == (1, 1)
        assert f"nid 10.0.0.1@{net} is not on net tcp" in lines[0]


def test_what_is_wrong_with_the_host_is_not_taken_for_the_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "node").write_text(SERVER)
    (tmp_path / "host").write_text("interface: {}\n")
    assert main(["check", "--host", str(tmp_path / "host"), str(tmp_path / "node")]) == 2
    assert f"{tmp_path}/host: line 1: invalid key 'interface'" in capsys.readouterr().err


def test_o2ib_nets_are_judged_as_all_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = SERVER.replace("tcp1", "o2ib1")
    client = CLIENT.replace("tcp1", "o2ib1")
    assert check(tmp_path, capsys, server) == (0, ["1 file: nothing wrong"])

    peers = (
        "peer:\n    - {primary nid: 10.0.0.2@tcp, peer ni: [{nid: 10.0.0.2@tcp}, {nid: 10.1.0.9@o2ib1}]}\n"
    )
    routes = (
        "route:\n    - {net: tcp5, gateway: 10.1.0.2@o2ib1}\n    - {net: tcp6, gateway: 10.2.0.2@o2ib2}\n"
    )
    status, lines = check(tmp_path, capsys, server + peers + routes, client)
    text = "\n".join(lines)
    assert status == 1
    assert "node1:7: error: peer 10.0.0.2@tcp has 10.1.0.9@o2ib1, which node2 has not" in text
    assert (
        "node1:9: warning: gateway 10.1.0.2@o2ib1 of the route to tcp5 is node2, which does not route" in text
    )
    assert "node1:10: error: no NI is on net o2ib2 of gateway 10.2.0.2@o2ib2" in text


@pytest.mark.requirement("HLD-modparams")
@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("ksocklnd keepalive_count=128", "keepalive_count=128 is out of range: use 0 to 127"),
        ("lnet accept_timeout=0", "accept_timeout=0 is out of range: use 0.001 to 86400"),
        ("ko2iblnd retry_count=8", "retry_count=8 is out of range: use 0 to 7"),
    ],
)
def test_drivers_parameters_out_of_range(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, wrong: str
) -> None:
    status, lines = check(tmp_path, capsys, f"options {line}\n")
    assert status == 1 and wrong in lines[0], lines

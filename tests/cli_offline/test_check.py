"""`ulnet check`: what is wrong with files is found by a dry run, in the words of a real node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.shared import shared_path
from ulnet.cli.ulnet import main

GOOD = """\
net:
    - net type: tcp
      local NI(s):
        - {nid: 10.0.0.1@tcp, interfaces: {0: eth0}}
        - {nid: 10.0.1.1@tcp, interfaces: {0: eth1}}
peer:
    - primary nid: 10.0.0.2@tcp
      peer ni: [{nid: 10.0.0.2@tcp}, {nid: 10.0.1.2@tcp}]
route:
    - {net: o2ib, gateway: 10.0.0.9@tcp}
"""


class Check:
    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capsys = capsys

    def __call__(self, *texts: str, words: tuple[str, ...] = ()) -> tuple[int, list[str]]:
        names = []
        for at, text in enumerate(texts, 1):
            file = self.folder / f"node{at}"
            file.write_text(text)
            names.append(str(file))
        status = main(["check", *words, *names])
        out = self.capsys.readouterr().out.replace(f"{self.folder}/", "")
        return status, out.splitlines()


@pytest.fixture
def check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Check:
    return Check(tmp_path, capsys)


def test_a_good_file(check: Check) -> None:
    assert check(GOOD) == (0, ["1 file: nothing wrong"])


def test_module_parameters_that_nobody_knows_are_warnings(check: Check) -> None:
    status, lines = check("options lnet networks=tcp lnet_retry_cont=1\noptions lnet accept_port=990\n")
    assert (status, len(lines)) == (0, 3)
    assert lines[0] == (
        "node1: warning: lnet_retry_cont=1: nothing in ulnet corresponds to it; "
        "did you mean lnet_retry_count?"
    )
    assert lines[1].startswith("node1: note: accept_port: start lnetd with")
    assert check("options lnet networks=tcp lnet_retry_cont=1\n", words=("--strict",))[0] == 1


def test_syntax_and_typing_errors_are_all_told(check: Check) -> None:
    status, lines = check("global:\n    discovry: 1\npeers:\n    - nids: {}\n")
    assert status == 1
    assert lines == [
        "node1:2: error: invalid key 'discovry' in global: did you mean 'discovery'?",
        "node1:4: error: no value for 'nids': write 'nids:' and below it '0: 10.0.0.2@tcp'",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("net: [\n", "2: error: this is not YAML: did not find expected node content"),
        ("net:\n    - net type: tcp\n\t  local: 1\n", "3: error: this is not YAML: found a tab"),
        ("net:\n    - net type: tcp\n     local: 1\n", "3: error: this is not YAML: did not find expected"),
        ("net:\n    - net type: '\\q\n", "3: error: this is not YAML: found unexpected end of stream"),
        ("net:\n    - &x tcp\n    - *x\n", "3: error: aliases (*name) are not supported here"),
        ("net:\n    - !!net tcp\n", "2: error: tags such as tag:yaml.org,2002:net are not supported"),
        ("net:\n    - a: \x01\n", "2: error: this is not YAML: character"),
        ("\n- net\n", "2: error: a file holds sections such as 'net:'"),
    ],
)
def test_errors_of_syntax_name_their_line(check: Check, text: str, line: str) -> None:
    status, lines = check(text)
    assert (status, len(lines)) == (1, 1)
    assert lines[0].startswith(f"node1:{line}")


def test_what_a_node_would_refuse(check: Check) -> None:
    text = """\
net:
    - net type: tcp
      local NI(s):
        - {nid: 10.0.0.1@tcp, interfaces: {0: eth0}}
        - {nid: 10.0.0.1@tcp}
        - {nid: 10.0.0.7@tcp, interfaces: {0: eth0}}
        - {interfaces: {0: eth1}, tunables: {peer_credits: -7}}
peer:
    - {primary nid: 10.0.0.2@tcp, peer ni: [{nid: 10.0.1.2@tcp1}]}
    - {primary nid: 10.0.0.3@tcp, peer ni: [{nid: 10.0.1.2@tcp1}]}
global: {transaction_timeout: 1, retry_count: 5}
udsp:
    - {src: banana}
buffers: {tiny: -9}
"""
    status, lines = check(text)
    assert status == 1
    assert [line.partition(": ")[0] for line in lines if ": error:" in line] == [
        *("node1:5", "node1:6", "node1:7", "node1:10", "node1:11", "node1:13", "node1:14")
    ]
    assert "10.0.0.1@tcp is configured already" in lines[0]
    assert "interface eth0 is in net tcp already" in lines[1]
    assert "peer_credits -7 is out of range" in lines[2]
    assert "10.0.1.2@tcp1 belongs to the configured peer 10.0.0.2@tcp" in "".join(lines)


def test_interfaces_are_told_by_their_names(check: Check) -> None:
    """Where the file has no address the dry run invents one, which nobody knows."""
    twice = "net:\n    - net type: tcp\n      local NI(s):\n        - {interfaces: {0: eth0, 1: eth1}}\n"
    status, lines = check(twice.replace("eth1", "eth0"))
    assert (status, lines) == (
        1,
        [
            "node1:4: error: interface eth0 is named twice for net tcp: one device carries one NI of a net, "
            "name it once"
        ],
    )
    status, lines = check(twice + "        - {interfaces: {0: eth0}}\n")
    assert (status, lines) == (
        1,
        [
            "node1:5: error: interface eth0 is in net tcp already: one device carries one NI of a net, "
            "name it once"
        ],
    )
    status, lines = check("use_tcp_bonding: 1\n" + twice + "        - {interfaces: {0: eth2}}\n")
    assert status == 1 and "it is one NI, that of eth0, and takes no other" in lines[0]


def test_peers_with_one_rail_or_none(check: Check) -> None:
    status, lines = check(GOOD.replace(", {nid: 10.0.1.2@tcp}", ""))
    assert status == 0
    assert lines == [
        "node1:7: warning: peer 10.0.0.2@tcp has one NID, this node 2: messages to it use one rail; name its "
        "other NIDs, say Multi-Rail: False if it has none, or leave the peer to discovery"
    ]
    assert check(GOOD.replace(", {nid: 10.0.1.2@tcp}", ""), words=("--strict",))[0] == 1
    far = GOOD + "peers:\n    - nids: {0: 10.9.9.9@tcp9, 1: 10.9.9.8@tcp8}\n"
    assert check(far)[1] == [
        "node1:12: warning: peer 10.9.9.9@tcp9 cannot be reached: it is on tcp9, tcp8, where this "
        "node has no NI "
        "and no route"
    ]


def test_a_peer_with_a_nid_of_ours(check: Check) -> None:
    """What the node itself says of it."""
    status, lines = check(GOOD + "peers:\n    - nids: {0: 10.0.0.5@tcp, 1: 10.0.0.1@tcp}\n")
    assert (status, lines[0]) == (
        1,
        "node1:12: error: NID 1: 10.0.0.1@tcp is a NID of this node: peer 10.0.0.5@tcp cannot have it; "
        "give NIDs of the other node only",
    )


HOST = """\
interfaces:
    eth0: 10.0.0.1/24
    eth1: [10.0.2.1/24, "fd00::1/64"]
    eth2: [down, 10.0.3.1/24]
"""


def test_against_the_interfaces_of_a_host(check: Check, tmp_path: Path) -> None:
    facts = tmp_path / "facts"
    facts.write_text(HOST)
    host = ("--host", str(facts))
    status, lines = check(GOOD + "ip2nets:\n    - {net-spec: tcp3, ip-range: {0: 10.0.3.*}}\n", words=host)
    assert status == 1
    assert lines == [
        "node1:5: error: interface eth1 has 10.0.2.1, fd00::1, not 10.0.1.1: the NI would not be "
        "10.0.1.1@tcp; correct the nid or leave it out",
        "node1:12: error: no interface of this host matches 10.0.3.*: it has eth0 10.0.0.1, eth1 10.0.2.1, "
        "eth1 fd00::1",
    ]
    status, lines = check("net:\n  - {net: tcp, intf: 'eth2,eth9'}\n  - {net: tcp, intf: eth9}\n", words=host)
    assert "interface eth2 is down" in lines[0] and "no interface is named 'eth9'" in lines[1]
    facts.write_text("interfaces:\n    eth0: banana\nhost: x\n")
    assert main(["check", "--host", str(facts), str(facts)]) == 2
    assert check(GOOD, words=("--live",))[0] == 1  # this host has no eth0 with that address


def test_rules_that_need_a_host_are_a_note(check: Check) -> None:
    status, lines = check("ip2nets:\n    - {net-spec: tcp, ip-range: {0: 10.*.*.*}}\n")
    assert status == 0
    assert lines[0].startswith("node1:2: note: which interfaces these rules choose depends on the host")
    assert check('options lnet networks="tcp0(eth0)" accept=all\n')[1][0].startswith(
        "node1: note: accept: start"
    )
    assert check('options lnet networks="tcp0(eth0"\n')[0] == 1


OTHER = """\
net:
    - net type: tcp
      local NI(s): [{nid: 10.0.0.2@tcp}, {nid: 10.0.1.2@tcp}, {nid: 10.0.2.2@tcp}]
"""


def test_nodes_are_compared_with_one_another(check: Check) -> None:
    status, lines = check(GOOD, OTHER)
    assert (status, lines) == (
        0,
        [
            "node1:7: warning: peer 10.0.0.2@tcp lacks 10.0.2.2@tcp, which node2 has: rails stay unused; "
            "name them too"
        ],
    )
    names_us = (
        "peer:\n    - {primary nid: 10.0.0.1@tcp, peer ni: [{nid: 10.0.1.1@tcp}, {nid: 10.0.7.1@tcp}]}\n"
    )
    exact = GOOD.replace("{nid: 10.0.1.2@tcp}]", "{nid: 10.0.1.2@tcp}, {nid: 10.0.2.2@tcp}]")
    status, lines = check(exact, OTHER + names_us)
    assert (status, lines) == (
        1,
        ["node2:5: error: peer 10.0.0.1@tcp has 10.0.7.1@tcp, which node1 has not: messages to it fail"],
    )
    stranger = "peer:\n    - {primary nid: 10.0.9.1@tcp, peer ni: [{nid: 10.0.9.2@tcp}]}\n"
    status, lines = check(exact, OTHER + stranger)
    assert lines == [
        "node1:7: warning: node2 is a peer here, but node1 is none there: without discovery it "
        "answers as to a "
        "node with one rail"
    ]
    assert "is a NID of node1 too" in "".join(check(OTHER, OTHER)[1])
    third = (
        OTHER.replace("10.0.0.2", "10.0.0.3").replace("10.0.1.2", "10.0.1.3").replace("10.0.2.2", "10.0.2.3")
    )
    mixed = exact + "peers:\n    - nids: [10.0.0.3@tcp, 10.0.5.5@tcp]\n"
    assert "has 10.0.5.5@tcp, which node3 has not" in "".join(check(mixed, OTHER, third)[1])


def test_json_and_unreadable_files(check: Check, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = check("global: {discovry: 1}\n", words=("--json",))
    assert status == 1
    found = json.loads("\n".join(lines))
    assert [(one["level"], one["line"]) for one in found] == [("error", 1)]
    assert main(["check", str(tmp_path / "none")]) == 2
    assert "cannot be read: No such file or directory" in capsys.readouterr().err


def test_the_files_given_to_real_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    folder = shared_path("reference/yaml")
    bad = {
        file.stem for file in folder.glob("*.yaml") if main(["check", str(file)]) != 0 and capsys.readouterr()
    }
    assert bad == {"bad_net", "bad_route", "bad_syntax", "unknown_key", "route_add"}

"""Configuration files become requests; all that is wrong with one is told at once."""

from __future__ import annotations

import errno

import pytest

from support.shared import shared_path
from ulnet.dlc.config import Step, read_config, step_error
from ulnet.dlc.errors import ErrorItem
from ulnet.dlc.model import (
    Discover,
    GlobalSet,
    NetAdd,
    PeerAdd,
    PeerRefresh,
    Ping,
    SelectionAdd,
    Tunables,
    UdspAdd,
)
from ulnet.dlc.yaml_out import emit_errors

NETS = """\
net:
    - net type: lo
      local NI(s):
        - nid: 0@lo
          status: up
    - net type: tcp1
      local NI(s):
        - nid: 10.0.0.1@tcp1
          status: up
          interfaces:
              0: eth0
          statistics:
              send_count: 0
          sent_stats: {put: 1}
          health stats: {health value: 1000}
          tunables:
              peer_timeout: 100
              credits: 512
          lnd tunables:
              conns_per_peer: 4
              timeout: 20
              tos: -1
          dev cpt: -1
          CPT: "[0,1]"
        - interfaces:
              0: eth1[0]
              1: eth2
        - nid: 10.0.0.9@tcp1
"""


def requests(text: str) -> list[object]:
    config = read_config(text)
    assert config.errors == []
    return [step.request for step in config.steps]


def test_nets_become_requests_and_what_only_an_export_has_is_passed_over() -> None:
    assert requests(NETS) == [
        NetAdd(
            net="tcp1",
            interfaces=["eth0"],
            prefer="10.0.0.1@tcp1",
            in_file=True,
            tunables=Tunables(peer_timeout=100, credits=512, conns_per_peer=4, timeout=20, tos=-1),
            cpts="[0,1]",
        ),
        NetAdd(net="tcp1", interfaces=["eth1[0]", "eth2"], in_file=True),
        NetAdd(nids=["10.0.0.9@tcp1"], in_file=True),
    ]
    assert [step.line for step in read_config(NETS).steps] == [8, 25, 28]


def test_peers_become_requests() -> None:
    text = """\
peer:
    - primary nid: 10.0.0.2@tcp
      Multi-Rail: False
      peer state: 24
      peer ni:
        - nid: 10.0.0.2@tcp
          state: NA
          refcount: 1
    - primary nid: 10.0.0.4@tcp  # learned
      Multi-Rail: True
      peer state: 273
      peer ni:
        - nid: 10.0.0.4@tcp
    - primary nid: 10.0.0.3@tcp
      peer ni:
        - nid: 10.0.1.[2-3]@tcp1
      seq_no: 7
"""
    assert requests(text) == [
        PeerRefresh(["10.0.0.2@tcp"], "10.0.0.2@tcp", multi_rail=False),
        PeerRefresh(["10.0.1.[2-3]@tcp1"], "10.0.0.3@tcp", multi_rail=True),
    ]
    assert read_config(text).steps[1].seq_no == 7


def test_settings_may_stand_in_their_section_or_alone() -> None:
    text = (
        "global:\n    discovery: 0\n    lnd_timeout: 49\nretry_count: 3\nnuma: {range: 20}\nstatistics: 1\n"
    )
    assert requests(text) == [
        GlobalSet({"discovery": 0, "lnd_timeout": 49}),
        GlobalSet({"retry_count": 3}),
        GlobalSet({"numa_range": 20}),
    ]


def test_sections_repeat_in_their_order() -> None:
    text = "retry_count: 1\npeer:\n- primary nid: 10.0.0.2@tcp\nretry_count: 2\npeer:\n- primary nid: 1@tcp\n"
    assert requests(text) == [
        GlobalSet({"retry_count": 1}),
        PeerAdd(primary="10.0.0.2@tcp"),
        GlobalSet({"retry_count": 2}),
        PeerAdd(primary="1@tcp"),
    ]


def test_empty_sections_ask_for_nothing() -> None:
    assert requests("net:\npeer:\nglobal:\nnuma:\n") == []


WRONG = """\
net:
    - net typ: tcp
    - net type: tcp
    - net type: tcp
      local NI(s):
        - tunables:
              peer_credit: 8
              credits: many
        - nid: 10.0.0.1@tcp3
        - interfaces: eth0
        - just a word
peer:
    - Multi-Rail: maybe
      peer ni:
        - {}
global:
    discovery: [1]
    discovery: 1
pear:
    - primary nid: 10.0.0.2@tcp
route:
    - net: tcp5
"""


def test_everything_wrong_is_told_at_once_with_line_rule_and_way_out() -> None:
    errors = read_config(WRONG).errors
    assert [(item.errno, item.descr) for item in errors] == [
        (-22, "line 2: invalid key 'net typ' in net: did you mean 'net type'?"),
        (-22, "line 2: no value for 'net type': write 'net type: …'"),
        (-22, "line 3: net tcp has no 'local NI(s)': list its NIs, each with 'interfaces'"),
        (-22, "line 11: an item of 'local NI(s)' holds keys and values: write 'key: value'"),
        (-22, "line 7: invalid key 'peer_credit' in tunables: did you mean 'peer_credits'?"),
        (
            -22,
            "line 8: invalid value 'many' for 'credits', a number: write digits, such as credits: 1",
        ),
        (-22, "line 6: an NI of net tcp has neither 'interfaces' nor 'nid': name its interface"),
        (-22, "line 9: nid 10.0.0.1@tcp3 is not on net tcp: put it under the net that it is on"),
        (-22, "line 10: 'interfaces' holds numbered names, such as '0: eth0' on a line of its own"),
        (-22, "line 10: an NI of net tcp has neither 'interfaces' nor 'nid': name its interface"),
        (-22, "line 13: no value for 'primary nid': write 'primary nid: …'"),
        (-22, "line 13: invalid value 'maybe' for 'Multi-Rail': write True or False"),
        (-22, "line 15: no value for 'nid': write 'nid: …'"),
        (-22, "line 18: key 'discovery' of global is given twice: leave one"),
        (-22, "line 17: invalid value for 'discovery': it is one number, not a list or a mapping"),
        (-22, "line 19: invalid key 'pear' in a file: did you mean 'peer'?"),
        (-22, "line 22: no value for 'gateway': write 'gateway: …'"),
    ]
    assert {(item.verb, item.entity) for item in errors} == {("add", "import")}


def test_a_key_without_value_says_so() -> None:
    for text in ("retry_count:\n", "route:\n  - net:\n    gateway: 10.0.0.1@tcp\n", "numa:\n  range:\n"):
        (error,) = read_config(text).errors
        assert "no value for" in error.descr


def test_text_that_is_not_yaml_is_one_error_with_its_line() -> None:
    config = read_config("net:\n  - net type: tcp\n local NI(s):\n   bad indent: [\n")
    assert config.steps == []
    assert [item.descr for item in config.errors] == ["line 3: this is not YAML: did not find expected key"]


def test_a_refused_step_names_its_line_and_number() -> None:
    step = Step(PeerAdd(primary="x"), 12, 7)
    item = step_error(step, ErrorItem("add", "udsp", -errno.EINVAL, "no"))
    assert item == ErrorItem("add", "udsp", -22, "line 12: no", 7)
    assert emit_errors([item]).splitlines()[2].strip() == "seq_no: 7"


@pytest.mark.parametrize(
    ("name", "steps", "errors"),
    [
        ("net_add", 1, 0),
        ("peer_add", 1, 0),
        ("global", 1, 0),
        ("empty", 0, 0),
        ("bad_iface", 1, 0),  # what interfaces there are is the node's to know
        ("bad_net", 0, 1),
        ("bad_syntax", 0, 1),
        ("unknown_key", 0, 1),
        ("route_add", 1, 0),
        ("udsp", 1, 0),
        ("ping", 0, 0),  # that is for `import --exec`
    ],
)
def test_the_files_given_to_real_nodes(name: str, steps: int, errors: int) -> None:
    config = read_config(shared_path(f"reference/yaml/{name}.yaml").read_text())
    assert (len(config.steps), len(config.errors)) == (steps, errors)


@pytest.mark.parametrize(
    "text",
    [
        "ping: {nids: {0: 10.0.0.2@tcp, 1: 10.0.0.3@tcp}, timeout: 2000}\n",
        "ping:\n  - nids: [10.0.0.2@tcp, 10.0.0.3@tcp]\n    timeout: 2000\n",
    ],
)
def test_pings_name_nids_by_number(text: str) -> None:
    config = read_config(text, "exec")
    assert config.errors == []
    assert [step.request for step in config.steps] == [Ping(["10.0.0.2@tcp", "10.0.0.3@tcp"], None, 2.0)]
    text = text.replace("ping", "discover").replace(", timeout: 2000", "").replace("    timeout: 2000\n", "")
    assert [step.request for step in read_config(text, "exec").steps] == [
        Discover(["10.0.0.2@tcp", "10.0.0.3@tcp"])
    ]
    refused = read_config("ping:\n- nid: 10.0.0.2@tcp\n", "exec").errors
    assert len(refused) == 1 and "did you mean 'nids'" in refused[0].descr
    assert read_config("ping: {nids: x}\n", "exec").errors[0].descr.startswith("line 1: no value for 'nids'")


def test_tunables_of_a_net_are_for_each_ni_that_gives_none() -> None:
    text = """\
net:
    - net type: tcp1
      tunables: {credits: 64, peer_credits: 4}
      lnd tunables: {conns_per_peer: 2}
      CPT: "[0]"
      local NI(s):
        - interfaces: {0: eth0}
        - interfaces: {0: eth1}
          tunables: {credits: 128}
          CPT: "[1]"
"""
    assert requests(text) == [
        NetAdd(
            "tcp1",
            ["eth0"],
            in_file=True,
            tunables=Tunables(peer_credits=4, credits=64, conns_per_peer=2),
            cpts="[0]",
        ),
        NetAdd(
            "tcp1",
            ["eth1"],
            in_file=True,
            tunables=Tunables(peer_credits=4, credits=128, conns_per_peer=2),
            cpts="[1]",
        ),
    ]


@pytest.mark.requirement("cfg-165", "HLD-selection")
def test_policies_become_requests_in_both_forms() -> None:
    text = """\
udsp:
    - idx: 2
      src: tcp
      action:
          priority: 0
    - dst: 10.0.0.*@tcp
      rte: 10.0.0.9@tcp
      seq_no: 4
    - src: tcp1
      priority: 3
selection:
    - type: net
      id: 7
      net: tcp2
      priority: 0
    - type: peer
      local: 10.0.0.1@tcp
      remote: 10.0.0.2@tcp
"""
    assert requests(text) == [
        UdspAdd(src="tcp", priority=0, idx=2),
        UdspAdd(dst="10.0.0.*@tcp", rte="10.0.0.9@tcp"),
        UdspAdd(src="tcp1", priority=3),
        SelectionAdd("net", net="tcp2", priority=0),
        SelectionAdd("peer", local="10.0.0.1@tcp", remote="10.0.0.2@tcp"),
    ]


def test_all_that_is_wrong_with_policies_is_told() -> None:
    text = """\
udsp:
    - src: tcp
      action: high
    - source: tcp
    - src: tcp
      priority: 1
      action:
          priority: 2
    - src: tcp
      idx: first
selection:
    - net: tcp
    - type: router
    - type: net
      nid: 10.0.0.1@tcp
    - type: peer
      local: 10.0.0.1@tcp
    - type: nid
      nid: 10.0.0.1@tcp
      side: left
"""
    assert [item.descr for item in read_config(text).errors] == [
        "line 3: 'action' holds keys and values: write 'key: value' below it",
        "line 4: invalid key 'source' in a udsp rule: did you mean 'src'?",
        "line 5: 'priority' is given twice, also in 'action': leave one",
        "line 10: invalid value 'first' for 'idx', a number: write digits, such as idx: 1",
        "line 12: no value for 'type': write 'type: …'",
        "line 13: type 'router' of a selection rule is none of net, nid, peer",
        "line 14: 'nid' has no place in a rule of type net",
        "line 16: no value for 'remote': write 'remote: …'",
        "line 18: side 'left' of a selection rule is none of local, remote, both",
    ]

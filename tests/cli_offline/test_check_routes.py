"""`ulnet check` on routes: those of one file in the words of a node, those of several files together."""

from __future__ import annotations

from pathlib import Path

import pytest

from ulnet.cli.ulnet import main

CLIENT = """\
net:
    - net type: tcp1
      local NI(s): [{nid: 10.1.0.1@tcp1}]
route:
    - {net: tcp2, gateway: 10.1.0.9@tcp1}
"""
ROUTER = """\
net:
    - net type: tcp1
      local NI(s): [{nid: 10.1.0.9@tcp1}]
    - net type: tcp2
      local NI(s): [{nid: 10.2.0.9@tcp2}]
routing: {enable: 1}
"""
SERVER = """\
net:
    - net type: tcp2
      local NI(s): [{nid: 10.2.0.1@tcp2}]
route:
    - {net: tcp1, gateway: 10.2.0.9@tcp2}
"""


class Check:
    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capsys = capsys

    def __call__(self, *texts: str) -> tuple[int, list[str]]:
        names = []
        for at, text in enumerate(texts, 1):
            file = self.folder / f"node{at}"
            file.write_text(text)
            names.append(str(file))
        status = main(["check", *names])
        return status, self.capsys.readouterr().out.replace(f"{self.folder}/", "").splitlines()


@pytest.fixture
def check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Check:
    return Check(tmp_path, capsys)


def test_nodes_that_reach_each_other(check: Check) -> None:
    assert check(CLIENT) == (0, ["1 file: nothing wrong"])
    assert check(CLIENT, ROUTER, SERVER) == (0, ["3 files: nothing wrong"])


def test_what_a_node_would_refuse_is_told_in_its_words(check: Check) -> None:
    routes = """\
    - {net: tcp2, gateway: 10.1.0.9@tcp1}
    - {net: tcp02, gateway: '10.1.0.[8-9]@tcp1'}
    - {net: tcp7, gateway: 10.0.0.9@tcp5}
    - {net: tcp1, gateway: 10.1.0.9@tcp1}
    - {net: tcp8, gateway: banana@x, hop: 3}
    - {net: tcp8, gateway: 10.1.0.9@tcp1, hop: 300}
    - {net: tcp8, gateway: 10.1.0.9@tcp1, priority: -2}
    - {net: tcp8, gateway: 10.1.0.1@tcp1}
    - {net: lo, gateway: 10.1.0.9@tcp1}
"""
    status, lines = check(CLIENT + routes)
    assert status == 1
    there = "there is a route to tcp2 over the node of 10.1.0.9@tcp1 already"
    expected = [
        (6, there),
        (7, there),
        (8, "no NI is on net tcp5 of gateway 10.0.0.9@tcp5: add one first"),
        (9, "gateway 10.1.0.9@tcp1 is on net tcp1 itself"),
        (10, "net 'x' has no known type"),
        (11, "hop 300 is out of range: use 1 to 255"),
        (12, "priority -2 is out of range: use 0"),
        (13, "gateway 10.1.0.1@tcp1 is this node itself"),
        (14, "there is no route to net lo"),
    ]
    assert len(lines) == len(expected)
    for line, (number, text) in zip(lines, expected, strict=True):
        assert line.startswith(f"node1:{number}: error: {text}")


def test_two_nids_of_one_gateway(check: Check) -> None:
    peer = "peer:\n    - {primary nid: 10.1.0.9@tcp1, peer ni: [{nid: 10.1.0.8@tcp1}]}\n"
    text = f"{peer}{CLIENT}    - {{net: tcp2, gateway: 10.1.0.8@tcp1}}\n"
    status, lines = check(text)
    assert status == 1
    assert lines[0].startswith(
        "node1:8: error: there is a route to tcp2 over the node of 10.1.0.8@tcp1 already"
    )


def test_a_route_to_a_net_that_is_local_and_one_before_its_net(check: Check) -> None:
    status, lines = check(CLIENT.replace("tcp2", "tcp1").replace("10.1.0.9@tcp1", "10.1.0.9@tcp5"))
    assert (status, lines[0].split(": ", 2)[2]) == (
        1,
        "this node is on net tcp1 itself: no route to it is needed",
    )
    net, _, route = CLIENT.partition("route:")
    assert check(f"route:{route}{net}") == (
        1,
        [
            "node1:2: error: no NI is on net tcp1 of gateway 10.1.0.9@tcp1: add one first, or give a NID of "
            "the gateway on a net of this node"
        ],
    )


def test_nets_that_depend_on_the_host_make_routes_uncertain_not_wrong(check: Check) -> None:
    _, _, route = CLIENT.partition("route:")
    status, lines = check(f"ip2nets:\n    - {{net-spec: tcp1, ip-range: {{0: 10.1.*.*}}}}\nroute:{route}")
    assert status == 0
    assert [line.split(": ")[1] for line in lines] == ["note", "note", "nothing wrong"]


def test_what_a_router_alone_shows(check: Check) -> None:
    one_net, _, _ = CLIENT.partition("route:")
    status, lines = check(one_net + "buffers: {tiny: 600}\nrouting: {enable: 1}\n")
    assert status == 0
    assert lines == [
        "node1: warning: routing is enabled, but this node is on one net at most (tcp1): nothing can "
        "pass; add "
        "an NI on another net",
        "node1:4: warning: router buffers are forgotten while routing is off, as on kernel nodes: write "
        "'routing: {enable: 1}' before them",
    ]
    assert check(ROUTER + "buffers: {tiny: 600}\n") == (0, ["1 file: nothing wrong"])


def test_a_state_in_a_file_sets_nothing(check: Check) -> None:
    status, lines = check(CLIENT.replace("tcp1}\n", "tcp1, state: up}\n"))
    assert (status, lines) == (0, ["1 file: nothing wrong"])
    status, lines = check(CLIENT.replace("0.9@tcp1}\n", "0.9@tcp1, state: down}\n"))
    assert (status, lines[:1]) == (
        0,
        [
            "node1:5: note: state down of a route has no effect: a route is up or down by what its gateway "
            "answers; leave the route out if it must not be used"
        ],
    )


def test_a_gateway_that_does_not_route(check: Check) -> None:
    status, lines = check(CLIENT, ROUTER.replace("enable: 1", "enable: 0"), SERVER)
    assert status == 0
    assert lines == [
        "node1:5: warning: gateway 10.1.0.9@tcp1 of the route to tcp2 is node2, which does not route: write "
        "'routing: {enable: 1}' there",
        "node3:5: warning: gateway 10.2.0.9@tcp2 of the route to tcp1 is node2, which does not route: write "
        "'routing: {enable: 1}' there",
    ]


def test_a_gateway_that_is_not_there(check: Check) -> None:
    status, lines = check(CLIENT, ROUTER.replace("tcp2", "tcp3"))
    assert (status, lines) == (
        1,
        [
            "node1:5: error: gateway 10.1.0.9@tcp1 of the route to tcp2 is node2, which is neither "
            "on tcp2 nor "
            "has a route to it: messages end there"
        ],
    )
    further = ROUTER.replace("tcp2", "tcp3") + "route:\n    - {net: tcp2, gateway: 10.2.0.7@tcp3}\n"
    assert check(CLIENT, further)[0] == 0
    status, lines = check(CLIENT.replace("0.9@tcp1}", "0.9@tcp1, hop: 1}"), further)
    assert (status, lines) == (
        0,
        [
            "node1:5: warning: gateway 10.1.0.9@tcp1 of the route to tcp2 is node2, which is not on "
            "tcp2: with "
            "hop 1 the route counts as down; leave the hop out"
        ],
    )


def test_a_node_without_a_route_back(check: Check) -> None:
    status, lines = check(CLIENT, ROUTER, SERVER.partition("route:")[0])
    assert (status, lines) == (
        0,
        [
            "node1:5: warning: node3 is reached over 10.1.0.9@tcp1, but has no route back to tcp1: "
            "its answers "
            "are lost"
        ],
    )


def ring_node(number: int, on: str, to: str, *routes: str) -> str:
    lines = "".join(f"    - {{net: tcp9, gateway: {gateway}}}\n" for gateway in routes)
    return f"""\
net:
    - net type: {on}
      local NI(s): [{{nid: 10.0.1.{number}@{on}}}]
    - net type: {to}
      local NI(s): [{{nid: 10.0.2.{number}@{to}}}]
routing: {{enable: 1}}
route:
{lines}"""


def test_a_loop_of_three(check: Check) -> None:
    one = ring_node(1, "tcp1", "tcp2", "10.0.1.2@tcp2")
    two = ring_node(2, "tcp2", "tcp3", "10.0.1.3@tcp3")
    three = ring_node(3, "tcp3", "tcp1", "10.0.1.1@tcp1")
    status, lines = check(one, two, three)
    assert (status, lines) == (
        1,
        [
            "node1:8: error: routing loop: what goes to tcp9 goes round, node1 → node2 → node3 → "
            "node1: delete "
            "one of the routes"
        ],
    )
    spare = ring_node(3, "tcp3", "tcp1", "10.0.1.1@tcp1", "10.0.1.7@tcp3")
    status, lines = check(one, two, spare)
    assert (status, "may go round" in lines[0]) == (0, True)
    straight = ring_node(3, "tcp3", "tcp1", "10.0.1.7@tcp3")
    status, lines = check(one, two, straight)
    assert (status, lines[1:]) == (0, ["3 files: nothing wrong"])
    assert "note: gateway 10.0.1.7@tcp3 of the route to tcp9 is a node of none of these files" in lines[0]

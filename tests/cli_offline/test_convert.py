"""`ulnet convert`: legacy parameters from files, standard input and the command line, as YAML."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import yaml

from ulnet.cli.ulnet import main as ulnet

Captured = pytest.CaptureFixture[str]


def converted(capsys: Captured, *words: str) -> Any:
    """The document that the command writes."""
    code = ulnet(["convert", *words])
    shown = capsys.readouterr()
    assert code == 0, shown.err
    return yaml.safe_load(shown.out)


def refused(capsys: Captured, *words: str) -> tuple[int, str]:
    """Its exit status and its error."""
    code = ulnet(["convert", *words])
    shown = capsys.readouterr()
    assert shown.out == ""
    return code, shown.err.removeprefix("ulnet convert: error: ").strip()


@pytest.mark.requirement("HLD-modparams", "bck-015")
def test_every_source_has_an_option(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    modprobe = tmp_path / "lustre.conf"
    modprobe.write_text("options lnet networks=tcp0(eth0)\n")
    ip2nets = tmp_path / "ip2nets"
    ip2nets.write_text("tcp1(eth1) 10.0.0.*; tcp2 10.1.*.*\n")
    routes = tmp_path / "routes"
    routes.write_text("o2ib0 10.0.0.1@tcp0\n")
    networks = tmp_path / "networks"
    networks.write_text("tcp5(eth5)\ntcp6(eth6)\n")
    words = ("-m", str(modprobe), "-i", str(ip2nets), "-r", str(routes), "-n", str(networks))
    expected: dict[str, Any] = {
        "net": [
            {"net type": "tcp0", "local NI(s)": [{"interfaces": {0: "eth0"}}]},
            {"net type": "tcp5", "local NI(s)": [{"interfaces": {0: "eth5"}}]},
            {"net type": "tcp6", "local NI(s)": [{"interfaces": {0: "eth6"}}]},
        ],
        "ip2nets": [
            {"net-spec": "tcp1", "interfaces": {0: "eth1"}, "ip-range": {0: "10.0.0.*"}},
            {"net-spec": "tcp2", "ip-range": {0: "10.1.*.*"}},
        ],
        "route": [{"net": "o2ib0", "gateway": "10.0.0.1@tcp0"}],
    }
    assert converted(capsys, *words) == expected
    monkeypatch.setattr("sys.stdin", io.StringIO(routes.read_text()))
    assert converted(capsys, "-r", "-") == {"route": expected["route"]}
    monkeypatch.setattr("sys.stdin", io.StringIO(modprobe.read_text()))
    assert converted(capsys) == {"net": expected["net"][:1]}


@pytest.mark.requirement("HLD-modparams")
def test_what_files_cannot_say_is_told(tmp_path: Path, capsys: Captured) -> None:
    modprobe = tmp_path / "lustre.conf"
    modprobe.write_text(
        "options lnet networks=tcp0(eth0)\noptions ksocklnd typed_conns=0 credits=8 keepalive=10\n"
        "options ko2iblnd retry_count=7 keepalive=77\n"
    )
    assert ulnet(["convert", "-m", str(modprobe)]) == 0
    told = capsys.readouterr().err.splitlines()
    assert [line.partition(" is ")[0] for line in told] == [
        f"ulnet convert: note: {one}"
        for one in ("keepalive=10", "typed_conns=0", "keepalive=77", "retry_count=7")
    ]
    assert all("start lnetd with --modprobe" in line for line in told)


@pytest.mark.requirement("HLD-modparams")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tcp0(eth0)", {"net": [{"net type": "tcp0", "local NI(s)": [{"interfaces": {0: "eth0"}}]}]}),
        ("networks=tcp0", {"net": [{"net type": "tcp0", "ip2net": "tcp0"}]}),
        ("tcp0 10.0.0.*", {"ip2nets": [{"net-spec": "tcp0", "ip-range": {0: "10.0.0.*"}}]}),
        (
            "ip2nets='tcp0 10.0.*.*' ip2nets=\"o2ib0(ib0) 10.1.*.*\"",
            {
                "ip2nets": [
                    {"net-spec": "tcp0", "ip-range": {0: "10.0.*.*"}},
                    {"net-spec": "o2ib0", "interfaces": {0: "ib0"}, "ip-range": {0: "10.1.*.*"}},
                ]
            },
        ),
        (
            "tcp1 2 10.0.0.1@tcp0:3; o2ib 10.0.0.2@tcp",
            {
                "route": [
                    {"net": "tcp1", "gateway": "10.0.0.1@tcp0", "hop": 2, "priority": 3},
                    {"net": "o2ib", "gateway": "10.0.0.2@tcp"},
                ]
            },
        ),
        (
            "tcp7: { gateway: 10.0.0.9@tcp0, hop: 8 }\n# the other way\n"
            "tcp8: { gateway: 10.0.0.[1-2]@tcp priority: 2 }",
            {
                "route": [
                    {"net": "tcp7", "gateway": "10.0.0.9@tcp0", "hop": 8},
                    {"net": "tcp8", "gateway": "10.0.0.[1-2]@tcp", "priority": 2},
                ]
            },
        ),
    ],
)
def test_text_is_taken_from_the_command_line(capsys: Captured, text: str, expected: object) -> None:
    assert converted(capsys, text) == expected


def test_routes_without_hop_count_get_the_default(capsys: Captured) -> None:
    text = "tcp1 10.0.0.1@tcp; tcp2 3 10.0.0.1@tcp"
    for words, hop in ((("--default-hop",), 1), (("--default-hop", "4"), 4)):
        routes = converted(capsys, "-r", text, *words)["route"]
        assert [route["hop"] for route in routes] == [hop, 3]


@pytest.mark.requirement("bck-015")
def test_networks_and_ip2nets_are_written_together(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "lustre.conf"
    file.write_text(
        'options lnet networks="tcp0(eth0)" ip2nets="tcp1 10.1.*.*"\n'
        'options lnet ip2nets="tcp2 10.2.*.*" routes="o2ib 10.1.0.1@tcp1"\n'
    )
    assert ulnet(["convert", str(file)]) == 0
    shown = capsys.readouterr()
    found = yaml.safe_load(shown.out)
    assert found["net"][0]["net type"] == "tcp0"
    assert [rule["net-spec"] for rule in found["ip2nets"]] == ["tcp1", "tcp2"]
    assert "line 2: ip2nets of lnet is given twice" in shown.err
    assert "networks= and ip2nets= are both given" in shown.err


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("tcp0(eth0",), "bad text: "),
        (("tcp0 eth0",), "bad pattern: "),
        (("tcp0",), "bad text: 'tcp0' alone"),
        (("-i", "tcp0"), "bad text: 'tcp0' alone"),
        (("-r", "tcp0"), "bad route: "),
        (("-n", "nonet(eth0)"), "bad net: "),
        (("-n", "tcp0(eth0,credit=4)"), "bad option: "),
        (("-r", "tcp7: { gateway: 10.0.0.1@tcp, gateway: 10.0.0.2@tcp }"), "bad route: "),
        (("-r", "tcp7: { gateway: 10.0.0.1@tcp 10.0.0.2@tcp }"), "bad route: "),
        (("-r", "tcp7: { hop: 2 }"), "bad route: "),
        (("-r", "tcp7: { gateway: 10.0.0.1@tcp, hops: 2 }"), "bad option: "),
        (("-r", "tcp7: { gateway: 10.0.0.1@tcp, hop: 256 }"), "bad hop count: "),
        (("-r", "tcp7: { gateway: 10.0.0.1@tcp, priority: x }"), "bad priority: "),
        (("-r", "tcp1 0 10.0.0.1@tcp"), "bad hop count: "),
        (("-r", "tcp1 -1 10.0.0.1@tcp"), "bad hop count: "),
        (("-r", "tcp1 1000 10.0.0.1@tcp"), "bad hop count: "),
        (("-r", "tcp1 10.0.0.1@tcp", "--default-hop", "256"), "bad hop count: "),
        (("-r", "tcp1 10.0.0.1@tcp", "--default-hop", "x"), "bad hop count: "),
        (("-r", "tcp1 10.0.0@tcp"), "bad gateway: "),
        (("-i", "tcp0 10.0.0"), "bad pattern: "),
        (("-i", "tcp0 10.0.0.[9-1]"), "bad pattern: "),
        (("/nonexistent/lustre.conf",), "unreadable: "),
    ],
)
def test_errors_name_their_kind(capsys: Captured, words: tuple[str, ...], kind: str) -> None:
    code, told = refused(capsys, *words)
    assert (code, told[: len(kind)]) == (2, kind)


@pytest.mark.parametrize("text", ["", "# a comment\n", "options libcfs cpu_npartitions=2\n", "alias a b\n"])
def test_nothing_to_convert(tmp_path: Path, capsys: Captured, text: str) -> None:
    file = tmp_path / "lustre.conf"
    file.write_text(text)
    code = ulnet(["convert", "-m", str(file)])
    shown = capsys.readouterr()
    assert (code, shown.out) == (1, "")
    assert "nothing to convert" in shown.err

"""`ulnet pki`: what it says where it cannot do what it is asked."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from support.certificates import make_odd
from ulnet.cli.pki import main, make_authority, make_node, revoke


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What it prints to standard error."""
    assert main(list(words)) == 1
    out, err = capsys.readouterr()
    assert out == ""
    return err


def test_show_names_the_file_and_what_is_wrong_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = tmp_path / "nowhere"
    assert refused(capsys, "show", str(nowhere)) == f"ulnet pki: {nowhere}: No such file or directory\n"
    assert refused(capsys, "show", str(tmp_path)) == (
        f"ulnet pki: {tmp_path}/node.pem: No such file or directory\n"
    )
    odd = tmp_path / "odd.pem"
    odd.write_text("no certificate")
    assert refused(capsys, "show", str(odd)) == f"ulnet pki: {odd}: it has no certificate in PEM form\n"


def test_node_names_the_authority_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority, out = str(tmp_path / "ca"), str(tmp_path / "node7")
    text = refused(capsys, "node", "--ca", authority, "--out", out, "10.0.0.7@tcp")
    assert text == f"ulnet pki: {authority}/ca.pem: No such file or directory\n"


def test_revoke_adds_to_the_list_of_the_authority(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority = tmp_path / "ca"
    make_authority(authority)
    nodes = [tmp_path / f"node{number}" for number in range(3)]
    for number, node in enumerate(nodes):
        make_node(authority, node, [f"10.0.0.{number}@tcp"])
    listed = authority / "revoked.pem"
    for count, path in ((1, nodes[0]), (2, nodes[1] / "node.pem"), (2, nodes[0])):
        assert main(["revoke", "--ca", str(authority), str(path)]) == 0
        assert capsys.readouterr().out == (
            f"{listed}: {count} revoked in all: copy it to the directories of all nodes\n"
        )
    assert len(list(x509.load_pem_x509_crl(listed.read_bytes()))) == 2


def test_revocations_at_the_same_time_are_all_in_the_list(tmp_path: Path) -> None:
    """Each of four said `1 revoked`, and the list had one."""
    authority = tmp_path / "ca"
    make_authority(authority)
    nodes = [tmp_path / f"node{number}" for number in range(4)]
    for number, node in enumerate(nodes):
        make_node(authority, node, [f"10.0.0.{number}@tcp"])
    code = "import sys; from ulnet.cli.pki import main; sys.exit(main(sys.argv[1:]))"
    lock = os.open(authority, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    commands = [
        subprocess.Popen(
            [sys.executable, "-c", code, "revoke", "--ca", str(authority), str(node)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for node in nodes
    ]
    try:
        for command in commands:
            assert command.stderr is not None
            told = command.stderr.readline()
            assert told == f"ulnet pki: waits for another command that writes to {authority}\n"
    finally:
        os.close(lock)
        told_then = sorted(command.communicate()[0] for command in commands)
    assert [command.returncode for command in commands] == [0] * 4
    assert [text.partition(": ")[2].partition(" ")[0] for text in told_then] == ["1", "2", "3", "4"]
    assert len(list(x509.load_pem_x509_crl((authority / "revoked.pem").read_bytes()))) == 4


def test_the_authority_keeps_what_it_has_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who wants to revoke the certificate of a host that is stolen has it nowhere else."""
    authority = tmp_path / "ca"
    make_authority(authority)
    for number in (1, 2):
        make_node(authority, tmp_path / "node", [f"10.0.0.{number}@tcp"])
    issued = sorted((authority / "issued").iterdir())
    assert main(["show", *map(str, issued)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.split(": ")[1] for line in lines) == ["10.0.0.1@tcp", "10.0.0.2@tcp"]
    assert [Path(line.split(": ")[0]) for line in lines] == issued
    assert main(["show", str(tmp_path), *map(str, issued)]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == lines
    assert err == f"ulnet pki: {tmp_path}/node.pem: No such file or directory\n"


def test_revoke_refuses_what_is_not_of_the_authority(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority, other, node = tmp_path / "ca", tmp_path / "other", tmp_path / "node"
    make_authority(authority)
    make_authority(other)  # of the same name
    make_node(other, node, ["10.0.0.1@tcp"])
    words = ("revoke", "--ca", str(authority))
    assert refused(capsys, *words, str(node)) == (
        f"ulnet pki: {node}/node.pem is of another authority than {authority}: name that\n"
    )
    assert refused(capsys, *words, str(node / "node.key")) == (
        f"ulnet pki: {node}/node.key: it has no certificate in PEM form\n"
    )
    text = refused(capsys, *words, str(authority / "ca.pem"))
    assert text.startswith(f"ulnet pki: {authority}/ca.pem is the authority's own: make another one")
    assert not (authority / "revoked.pem").exists()
    (other / "revoked.pem").write_text("no list")
    assert refused(capsys, "revoke", "--ca", str(other), str(node)) == (
        f"ulnet pki: {other}/revoked.pem is no list of revoked certificates: bring it back, "
        "or begin anew without it\n"
    )
    assert (other / "revoked.pem").read_text() == "no list"


def test_an_authority_whose_key_is_encrypted_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority, node = tmp_path / "ca", tmp_path / "node"
    make_authority(authority)
    make_node(authority, node, ["10.0.0.1@tcp"])
    path = authority / "ca.key"
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    secret = serialization.BestAvailableEncryption(b"secret")
    form = serialization.PrivateFormat.PKCS8
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, secret))
    for words in (("revoke", str(node)), ("node", "--out", str(node), "10.0.0.2@tcp")):
        text = refused(capsys, words[0], "--ca", str(authority), *words[1:])
        assert text.startswith(f"ulnet pki: {path} is encrypted: decrypt it by `openssl pkey")


def test_revoke_names_what_else_the_node_may_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A certificate that was renewed is good still: who has it is not shut out by revoking the new one."""
    authority, node = tmp_path / "ca", tmp_path / "node"
    make_authority(authority)
    made: list[Path] = []
    for nids in (["10.0.0.7@tcp"], ["10.0.0.7@tcp"], ["10.0.0.[1-9]@tcp"], ["10.0.0.8@tcp"]):
        before = set((authority / "issued").glob("*")) if made else set()
        make_node(authority, node, nids)
        made += set((authority / "issued").glob("*")) - before
    make_node(authority, tmp_path / "old", ["10.0.0.7@tcp"], days=0)
    assert main(["revoke", "--ca", str(authority), str(made[0])]) == 0
    told = capsys.readouterr().out.splitlines()[1:]
    assert told == [
        f"{path} is good as well, and for 10.0.0.7@tcp: to shut that node out, revoke it, too"
        for path in sorted(made[1:3])
    ]
    assert main(["revoke", "--ca", str(authority), *map(str, made[1:3])]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"{made[3]} is good as well, and for 10.0.0.8@tcp: to shut that node out, revoke it, too"
    ]


def test_revoke_names_patterns_that_overlap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither is the other's, but the node may have one of the NIDs that both are for."""
    authority = tmp_path / "ca"
    make_authority(authority)
    make_node(authority, tmp_path / "gone", ["10.0.0.[1-8]@tcp", "10.1.0.1@tcp1"])
    before = set((authority / "issued").iterdir())
    make_node(authority, tmp_path / "good", ["10.0.0.[5-12]@tcp", "10.0.0.[9-12]@tcp", "10.1.0.0/24@tcp1"])
    (good,) = set((authority / "issued").iterdir()) - before
    make_node(authority, tmp_path / "other", ["10.0.0.[9-12]@tcp", "10.0.0.[1-8]@tcp1"])
    assert main(["revoke", "--ca", str(authority), str(tmp_path / "gone")]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"{good} is good as well, and for 10.0.0.[5-12]@tcp, 10.1.0.1@tcp1: "
        "to shut that node out, revoke it, too"
    ]


def test_revoke_goes_on_behind_a_file_that_is_no_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The list was written, and the exit status said that nothing was done."""
    authority = tmp_path / "ca"
    make_authority(authority)
    for name in ("gone", "good"):
        make_node(authority, tmp_path / name, ["10.0.0.7@tcp"])
    odd = authority / "issued" / "0.pem"
    odd.write_text("no certificate")
    assert main(["revoke", "--ca", str(authority), str(tmp_path / "gone")]) == 0
    out, err = capsys.readouterr()
    assert [line.partition(" is good as well")[1] for line in out.splitlines()] == ["", " is good as well"]
    assert err == f"ulnet pki: {odd}: it has no certificate in PEM form\n"


def test_show_tells_what_is_revoked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority, node = tmp_path / "ca", tmp_path / "node"
    make_authority(authority)
    make_node(authority, node, ["10.0.0.7@tcp"])
    (issued,) = (authority / "issued").iterdir()
    assert main(["show", str(issued), str(node)]) == 0
    assert "revoked" not in capsys.readouterr().out
    assert main(["revoke", "--ca", str(authority), str(issued)]) == 0
    capsys.readouterr()
    shutil.copy(authority / "revoked.pem", node)
    assert main(["show", str(issued), str(node)]) == 1
    assert [line.endswith(" days; revoked") for line in capsys.readouterr().out.splitlines()] == [True, True]
    assert main(["show", "--json", str(node)]) == 1
    assert json.loads(capsys.readouterr().out)["revoked"] is True
    assert main(["show", str(authority / "revoked.pem")]) == 0
    assert f"revoked.pem: {issued.stem} since 20" in capsys.readouterr().out
    assert main(["show", "--json", str(authority / "revoked.pem")]) == 0
    assert json.loads(capsys.readouterr().out)["serial"] == issued.stem


def test_show_tells_names_that_are_no_nids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They stand for none, and who made the certificate by other tools sees why it is refused."""
    authority, node = tmp_path / "ca", tmp_path / "node"
    make_authority(authority)
    make_node(authority, node, ["10.0.0.7@tcp"])
    names = ["LNET:10.0.0.1@tcp", "lnet:10.0.0.2@TCP", "lnet:10.0.0.3@tcp", "https://there", "lnet:\x1b[1m"]
    make_odd(authority, node, names)
    assert main(["show", str(node)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{node}: odd: 10.0.0.3@tcp; good until")
    assert out.endswith(
        "; names in it that are no NIDs: 'LNET:10.0.0.1@tcp', 'lnet:10.0.0.2@TCP', 'lnet:\\x1b[1m'\n"
    )
    assert main(["show", "--json", str(node)]) == 0
    assert json.loads(capsys.readouterr().out)["no_nids"] == [*names[:2], names[4]]


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
def test_revoke_says_what_it_cannot_put_into_a_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority, node = tmp_path / "ca", tmp_path / "node"
    make_authority(authority)
    make_node(authority, node, ["10.0.0.7@tcp"])
    make_odd(authority, node, ["lnet:10.0.0.7@tcp"], -5)
    text = refused(capsys, "revoke", "--ca", str(authority), str(node))
    assert text.startswith(f"ulnet pki: {node}/node.pem has the serial number -5, which no list")


def test_show_goes_on_behind_a_list_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority, nodes = tmp_path / "ca", [tmp_path / "one", tmp_path / "two"]
    make_authority(authority)
    for node in nodes:
        make_node(authority, node, ["10.0.0.7@tcp"])
    (nodes[0] / "revoked.pem").write_text("no list")
    assert main(["show", *map(str, nodes)]) == 1
    out, err = capsys.readouterr()
    assert out.startswith(f"{nodes[1]}: 10.0.0.7@tcp")
    assert "is no list of revoked certificates" in err


def test_show_needs_no_extra_where_a_list_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nodes have none: monitoring runs it there."""
    authority, nodes = tmp_path / "ca", [tmp_path / "one", tmp_path / "two"]
    make_authority(authority)
    for node in nodes:
        make_node(authority, node, ["10.0.0.7@tcp"])
    revoke(authority, [nodes[0] / "node.pem"])
    for node in nodes:
        shutil.copy(authority / "revoked.pem", node)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert main(["show", *map(str, nodes)]) == 1
    assert [line.endswith("; revoked") for line in capsys.readouterr().out.splitlines()] == [True, False]

"""`ulnet pki`: what it says where it cannot do what it is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from ulnet.cli.pki import main


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

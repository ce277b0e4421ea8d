"""Answers that are no documents: what looks at a node goes on without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.false_daemon import ANSWERS, false_daemon
from ulnet.cli.health import main as health
from ulnet.dlc import model
from ulnet.observe.snapshot import PARTS
from ulnet.observe.source import SocketSource


@pytest.mark.requirement("cfg-010")
@pytest.mark.parametrize("wrong", ANSWERS)
def test_what_is_no_document_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: str
) -> None:
    path = tmp_path / "socket"
    with false_daemon(path, ANSWERS[wrong]):
        source = SocketSource(str(path))
        seen = source.read(60.0)
        assert not seen.parts
        assert seen.missing.keys() == PARTS.keys()
        assert all("the answer cannot be understood: " in why for why in seen.missing.values())
        source.close()
        with pytest.raises(ValueError, match="the answer cannot be understood: "):
            source.ask(model.NetShow(), 60.0)
        with pytest.raises(ValueError, match="the answer cannot be understood: "):
            source.configuration(60.0)
        assert health(["--socket", str(path)]) == 3  # nothing is known
    assert "the answer cannot be understood: " in capsys.readouterr().out


@pytest.mark.requirement("cfg-010")
@pytest.mark.parametrize("document", [b"{}", b"null", b'{"net": 5}', b'{"peer": []}'])
def test_a_document_without_nets_says_nothing_of_health(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], document: bytes
) -> None:
    path = tmp_path / "socket"
    with false_daemon(path, document):
        assert health(["--socket", str(path)]) == 3
    assert "tells nothing: it shows no nets" in capsys.readouterr().out

"""Answers that are no documents: the library raises DlcError for all of them."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from support.false_daemon import ANSWERS, false_daemon
from ulnet.dlc import calls, model
from ulnet.dlc.client import Client, as_mapping
from ulnet.dlc.config import read_config
from ulnet.dlc.errors import DlcError
from ulnet.dlc.importing import import_config

pytestmark = pytest.mark.requirement("cfg-010")


@pytest.mark.parametrize("wrong", ANSWERS)
def test_what_is_no_document_is_one_error(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "socket"
    asked: list[calls.Call[Any]] = [
        calls.export(),
        calls.show_nets(),
        calls.show_ni("tcp", 0),
        calls.ping(["10.0.0.1@tcp"]),
        calls.discover(["10.0.0.1@tcp"]),
    ]
    with false_daemon(path, ANSWERS[wrong]), Client(str(path)) as client:
        for call in asked:
            with pytest.raises(DlcError, match="the answer cannot be understood: ") as told:
                client.call(call)
            assert told.value.errno == errno.EPROTO
        reply = client.request(model.NetShow())
        with pytest.raises(DlcError, match="the answer cannot be understood: ") as told:
            as_mapping(reply)
        assert told.value.errno == errno.EPROTO
        with pytest.raises(DlcError, match="the answer cannot be understood: "):
            import_config(client, read_config("net:\n    - net type: tcp\n", "show"))


def test_a_net_without_nis_has_none(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with false_daemon(path, b'{"net": []}'), Client(str(path)) as client:
        assert client.call(calls.show_ni("tcp", 0)) is None

"""Where snapshots come from: a node's control socket, or a file with what a node showed.

The real tool of a kernel node is `ulnet.observe.tool.ToolSource`.
"""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Any, Protocol

from ulnet.dlc import model
from ulnet.dlc.client import Client, as_mapping
from ulnet.dlc.errors import DlcError
from ulnet.dlc.protocol import Reply
from ulnet.dlc.yaml_out import emit_document
from ulnet.observe.reading import MAX_TEXT, read_text
from ulnet.observe.snapshot import PARTS, Snapshot

__all__ = ["FileSource", "SocketSource", "Source"]


class Source(Protocol):
    """Asks one node."""

    name: str

    @property
    def reach(self) -> str:
        """The command that is the node's lnetctl, for people to type."""

    def read(self, timeout: float) -> Snapshot:
        """What the node says of itself, within `timeout` seconds; raises nothing: what failed is missing."""

    def configuration(self, timeout: float) -> str:
        """What `lnetctl export --backup` writes. Raises ValueError."""

    def close(self) -> None:
        """Let go of what it holds."""


class SocketSource:
    """An ulnet node by its control socket."""

    def __init__(self, path: str | None = None) -> None:
        self._client = Client(path)
        self.name: str = self._client.path
        self.reach: str = "lnetctl" if path is None else f"lnetctl --socket {shlex.quote(path)}"

    def read(self, timeout: float) -> Snapshot:
        """Each part by one request; none more once one was not answered."""
        began = time.monotonic()
        parts: dict[str, Any] = {}
        missing: dict[str, str] = {}
        gone = ""
        for name, part in PARTS.items():
            left = began + timeout - time.monotonic()
            if gone or left <= 0:
                missing[name] = gone or f"no time left of {timeout:g} s"
                continue
            try:
                reply = self._client.request(part.request, left)
                document = as_mapping(reply)
            except DlcError as failed:
                missing[name] = gone = failed.descr
                continue
            refused = _refusal(reply)
            if refused:
                missing[name] = refused
            else:
                parts[name] = document
        return Snapshot(self.name, parts, missing, time.monotonic() - began)

    def ask(self, request: model.Request, timeout: float) -> dict[str, Any]:
        """What the node answers to another request, by a connection of its own. Raises ValueError."""
        try:
            with Client(self.name) as client:
                reply = client.request(request, timeout)
            document = as_mapping(reply)
        except DlcError as failed:
            raise ValueError(failed.descr) from None
        if reply.errors:
            raise ValueError(reply.errors[0].descr)
        return document

    def configuration(self, timeout: float) -> str:
        """The node's own backup. Raises ValueError."""
        return emit_document(self.ask(model.Export(backup=True), timeout))

    def close(self) -> None:
        """Hang up."""
        self._client.close()


class FileSource:
    """Documents in a file: an export, or what `lnetctl` showed, one part or several."""

    reach = "lnetctl"

    def __init__(self, path: str) -> None:
        self.name = path

    def read(self, timeout: float) -> Snapshot:
        """The parts that the file has."""
        began = time.monotonic()
        try:
            document = read_text(self._text())
        except OSError as failed:
            return _nothing(self.name, failed.strerror or str(failed), began)
        except ValueError as bad:
            return _nothing(self.name, str(bad), began)
        parts = {name: document for name, part in PARTS.items() if part.key in document}
        missing = {name: "the file has none" for name in PARTS if name not in parts}
        return Snapshot(self.name, parts, missing, time.monotonic() - began)

    def configuration(self, timeout: float) -> str:
        """The file. Raises ValueError."""
        try:
            return self._text().decode()
        except OSError as failed:
            raise ValueError(f"{self.name} cannot be read: {failed.strerror}") from None

    def _text(self) -> bytes:
        with Path(self.name).open("rb") as file:
            return file.read(MAX_TEXT + 1)

    def close(self) -> None:
        """There is nothing to let go of."""


def _refusal(reply: Reply) -> str:
    return reply.errors[0].descr if reply.errors else ""


def _nothing(name: str, why: str, began: float) -> Snapshot:
    return Snapshot(name, {}, dict.fromkeys(PARTS, why), time.monotonic() - began)

"""`lnetctl import`: the requests of a file, one after the other."""

from __future__ import annotations

import errno
import os
import sys
from typing import cast

from ulnet.cli.files import LONGEST, Unreadable, standard_input
from ulnet.cli.lnetctl_errors import report_errors
from ulnet.cli.lnetctl_options import Parsed
from ulnet.dlc.client import Client
from ulnet.dlc.config import Verb, read_config
from ulnet.dlc.errors import DlcError, ErrorItem
from ulnet.dlc.importing import import_config
from ulnet.dlc.yaml_out import emit_document, emit_errors
from ulnet.host import read_bounded

__all__ = ["run_import"]

_VERBS: tuple[Verb, ...] = ("add", "del", "show", "exec")


def run_import(parsed: Parsed, socket_path: str | None) -> int:
    """The exit status: that of the first error in the file."""
    chosen = [word for word in (*_VERBS, "apply") if parsed.flag(word)]
    if len(chosen) > 1:
        text = f"--{chosen[0]} and --{chosen[1]} exclude each other: give one of them"
        return report_errors([ErrorItem("add", "import", -errno.EINVAL, text)])
    try:
        text = _read(parsed.operands)
    except Unreadable as bad:
        sys.stderr.write(emit_errors([ErrorItem("yaml", "builder", -1, str(bad))]))
        return 256 - bad.errno
    verb = chosen[0] if chosen else "add"
    if verb == "apply":
        return _apply(text, socket_path)
    config = read_config(text, cast(Verb, verb))
    try:
        with Client(socket_path) as client:
            document, errors = import_config(client, config)
    except DlcError as refused:
        return report_errors([refused.item])
    sys.stdout.write(emit_document(document))
    return report_errors(errors)


def _apply(text: str, socket_path: str | None) -> int:
    from ulnet.cli.apply import applied  # late: it is a node

    try:
        done, refused = applied(read_config(text), socket_path, lambda change: None)
    except DlcError as bad:
        return report_errors([bad.item])
    sys.stdout.write(emit_document({"apply": [str(change) for change in done] or "nothing to change"}))
    return report_errors(refused)


def _read(operands: list[str]) -> str:
    if len(operands) > 1:
        raise Unreadable(f"one file at a time: {operands[1]!r} is one too many")
    name = operands[0] if operands else "standard input"
    try:
        if not operands or operands[0] == "-":
            return standard_input().read(LONGEST + 1)  # one more: who reads it as YAML refuses it
        return read_bounded(operands[0], LONGEST)
    except OSError as error:
        number = error.errno or errno.EIO
        raise Unreadable(f"cannot open '{name}': {error.strerror or os.strerror(number)}", number) from None
    except UnicodeDecodeError as bad:
        text = f"{name} is not UTF-8 text: {bad.reason} at byte {bad.start}"
        raise Unreadable(text, errno.EILSEQ) from None

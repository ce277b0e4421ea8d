"""Commands of the transcripts given to lnetd: two hosts with the recorded addresses, and what differs."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from support.daemon import PATIENCE, Done, environment, lnetctl
from support.transcripts import Step
from support.vma import documents, keys

__all__ = ["Hosts", "difference"]

NOTE = re.compile(r"^lnetctl: note: .*\n", re.MULTILINE)  # the real tool has none
_serial = itertools.count()


class Hosts:
    """vmA and vmB in network namespaces, joined by eth0 and by eth1, with an lnetd each."""

    def __init__(self, tmp_path: Path) -> None:
        self._names = {name: f"ulnet-{name}-{os.getpid()}-{next(_serial)}" for name in ("vmA", "vmB")}
        self.paths = {name: tmp_path / f"{name}.sock" for name in self._names}
        for space in self._names.values():
            _run("ip", "netns", "add", space)
        first, second = self._names.values()
        for index in (0, 1):
            eth = f"eth{index}"
            _run(
                "ip", "link", "add", eth, "netns", first, "type", "veth", "peer", "name", eth, "netns", second
            )
            for last, space in ((11, first), (12, second)):
                _run("ip", "-n", space, "address", "add", f"192.168.{110 + index}.{last}/24", "dev", eth)
                address6 = f"fd00:{110 + index}::{last}/64"
                _run("ip", "-n", space, "address", "add", address6, "dev", eth, "nodad")
                _run("ip", "-n", space, "link", "set", eth, "up")
        for space in (first, second):
            _run("ip", "-n", space, "link", "set", "lo", "up")
        self._processes = [self._start(name) for name in self._names]

    def _start(self, name: str) -> subprocess.Popen[str]:
        lnetd = [sys.executable, "-m", "ulnet.cli.lnetd", "--socket", str(self.paths[name])]
        words = ["ip", "netns", "exec", self._names[name], *lnetd]
        process = subprocess.Popen(words, env=environment(), stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        assert "ready" in process.stderr.readline()
        return process

    def ask(self, name: str, *words: str) -> Done:
        """A command on one of them."""
        return lnetctl("--socket", str(self.paths[name]), *words)

    def close(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.communicate(timeout=PATIENCE)
        for space in self._names.values():
            _run("ip", "netns", "del", space)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)


def difference(step: Step, done: Done, values_differ: bool = False) -> str | None:
    """What is said otherwise, None where nothing is; with `values_differ` only keys are compared."""
    if bool(done.code) != bool(step.code):
        return f"status {done.code}, really {step.code}"
    errors = _told(NOTE.sub("", done.err))
    if _told(step.err) != errors:
        return f"errors {errors}, really {_told(step.err)}"
    if "proto kernel" in step.out:  # the routes that a script of the real tool has set up
        return None
    real, ours = _read(step.out), _read(done.out)
    if real == ours or (values_differ and keys(real) == keys(ours)):
        return None
    return f"{ours}, really {real}"


def _read(text: str) -> Any:
    try:
        return documents(text)
    except yaml.YAMLError:
        return text


def _told(text: str) -> Any:
    """Verb, entity, errno of each error, whatever the description."""
    try:
        found = documents(text)
        return [
            (verb, [{key: value for key, value in item.items() if key != "descr"} for item in items])
            for one in found
            for verb, items in one.items()
        ]
    except (yaml.YAMLError, AttributeError):
        return "a sentence"

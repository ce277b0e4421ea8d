"""A kernel node, asked by its own `lnetctl`: a tool that hangs is ended, and not asked again for a while."""

from __future__ import annotations

import os
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from ulnet.observe.reading import MAX_TEXT, read_text
from ulnet.observe.snapshot import PARTS, Snapshot

__all__ = ["ToolError", "ToolSource", "kernel_tool"]

_FIRST_PAUSE: Final = 1.0  # seconds after a time-out in which the tool is not started again
_LONGEST_PAUSE: Final = 60.0
_CHUNK: Final = 1 << 16
_MOST_WORDS: Final = 200  # characters of its complaint that are told
_HEAD: Final = 512  # bytes of a script that say whose it is


class ToolError(Exception):
    """The tool printed nothing of use, and why."""


class ToolHangsError(ToolError):
    """The tool did not end in time."""


class ToolSource:
    """The real `lnetctl`, or a command line that leads to one: `ssh oss1 lnetctl`, `sudo -n lnetctl`.

    Only commands that show something are run. One that does not end in time is killed with its whole process
    group; none is started while a killed one is still there (it may wait in the kernel for good), nor in a
    pause after it, which doubles from one second up to a minute.
    """

    def __init__(self, command: str | Sequence[str] = "lnetctl") -> None:
        self._words = shlex.split(command) if isinstance(command, str) else list(command)
        if not self._words:
            raise ValueError("no command: name the real lnetctl, and what leads to it")
        self.name: str = shlex.join(self._words)
        self.reach: str = self.name
        self._stuck: subprocess.Popen[bytes] | None = None
        self._pause = 0.0
        self._again_at = 0.0

    def read(self, timeout: float) -> Snapshot:
        """Each part by one run of the tool; none more once one hung."""
        began = time.monotonic()
        parts: dict[str, Any] = {}
        missing: dict[str, str] = {}
        gone = self._why_not(began)
        for name, part in PARTS.items():
            left = began + timeout - time.monotonic()
            if gone or left <= 0:
                missing[name] = gone or f"no time left of {timeout:g} s"
                continue
            try:
                parts[name] = read_text(self._run(part.words, left))
            except ToolHangsError as hung:
                missing[name] = gone = str(hung)
                self._rest()
            except ToolError as failed:
                missing[name] = str(failed)
            except ValueError as bad:
                missing[name] = f"{shlex.join(part.words)} printed {bad}"
        if not gone:
            self._pause = 0.0
        return Snapshot(self.name, parts, missing, time.monotonic() - began)

    def configuration(self, timeout: float) -> str:
        """What its `export --backup` prints. Raises ValueError."""
        try:
            return self.printed(("export", "--backup"), timeout).decode(errors="replace")
        except ToolError as failed:
            raise ValueError(str(failed)) from None

    def printed(self, words: tuple[str, ...], timeout: float) -> bytes:
        """What it prints, given these words. Raises ToolError."""
        gone = self._why_not(time.monotonic())
        if gone:
            raise ToolError(gone)
        try:
            return self._run(words, timeout)
        except ToolHangsError:
            self._rest()
            raise

    def close(self) -> None:
        """End what still runs."""
        if self._stuck is not None:
            _kill(self._stuck)
            self._stuck = None

    def _rest(self) -> None:
        self._pause = min(max(self._pause * 2, _FIRST_PAUSE), _LONGEST_PAUSE)
        self._again_at = time.monotonic() + self._pause

    def _why_not(self, now: float) -> str:
        """Why the tool is not started now; empty if it may be."""
        if self._stuck is not None:
            if self._stuck.poll() is None:
                return f"{self.name} was killed, and is still there: process {self._stuck.pid}"
            self._stuck = None
        if now < self._again_at:
            return f"{self.name} hung: it is tried again in {self._again_at - now:.0f} s"
        return ""

    def _run(self, words: tuple[str, ...], timeout: float) -> bytes:
        """What it prints. Raises ToolError, ToolHangsError."""
        give_up = time.monotonic() + timeout
        said = shlex.join(words)
        try:
            process = subprocess.Popen(
                [*self._words, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env={**os.environ, "LC_ALL": "C"},
            )
        except OSError as failed:
            raise ToolError(f"{self.name} cannot be run: {failed.strerror}") from None
        ended = False
        try:
            out, err = _gather(process, give_up)
            status = process.wait(max(give_up - time.monotonic(), 0.0))
            ended = True
        except subprocess.TimeoutExpired:
            raise ToolHangsError(f"{said}: no end in {timeout:.1f} s") from None
        finally:
            _close(process)
            if not ended and not _kill(process):  # it may be gone, and its children not
                self._stuck = process
        if status:
            raise ToolError(f"{said}: {_ending(status)}{_complaint(err or out)}")
        return out


def _gather(process: subprocess.Popen[bytes], give_up: float) -> tuple[bytes, bytes]:
    """All that it prints, of both kinds. Raises TimeoutExpired, ToolError for too much."""
    assert process.stdout is not None
    assert process.stderr is not None
    told = {process.stdout: bytearray(), process.stderr: bytearray()}
    with selectors.DefaultSelector() as selector:
        for pipe in told:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(give_up - time.monotonic(), 0.0))
            if not ready:
                raise subprocess.TimeoutExpired(process.args, 0.0)
            for key, _ in ready:
                data = os.read(key.fd, _CHUNK)
                told[key.fileobj] += data  # type: ignore[index]
                if not data:
                    selector.unregister(key.fileobj)
            if sum(map(len, told.values())) > MAX_TEXT:
                raise ToolError(f"it printed more than {MAX_TEXT} bytes")
            if time.monotonic() >= give_up and selector.get_map():
                raise subprocess.TimeoutExpired(process.args, 0.0)
    return bytes(told[process.stdout]), bytes(told[process.stderr])


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _kill(process: subprocess.Popen[bytes]) -> bool:
    """Kill it with all that it started; whether it is gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(0.2)
    except subprocess.TimeoutExpired:
        return False
    return True


def _ending(status: int) -> str:
    if status > 0:
        return f"exit status {status}"
    try:
        return f"ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"ended by signal {-status}"


def _complaint(text: bytes) -> str:
    line = " ".join(text.decode(errors="replace").split())
    line = "".join(one if one.isprintable() else "?" for one in line)
    return f": {line[:_MOST_WORDS]}" if line else ""


def kernel_tool() -> str:
    """The first `lnetctl` on PATH that is not ulnet's own. Raises ValueError."""
    ours = ""
    for folder in os.get_exec_path():
        path = os.path.join(folder, "lnetctl")
        if not (os.path.isfile(path) and os.access(path, os.X_OK)):
            continue
        if not _is_ours(path):
            return path
        ours = ours or path
    found = f"{ours} is ulnet's own" if ours else "there is none"
    raise ValueError(f"no lnetctl of the kernel's LNet on PATH: {found}; name the real one by --tool COMMAND")


def _is_ours(path: str) -> bool:
    """Whether it is a script of ulnet; the real one is a program in machine code."""
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    return head.startswith(b"#!") and b"ulnet.cli" in head

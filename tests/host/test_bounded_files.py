"""Files of which nobody knows what they are end no command, and take neither its time nor its memory."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ulnet.host import read_bounded


def test_a_file_and_one_that_is_too_long(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("grüße")
    assert read_bounded(file, 100) == "grüße"
    assert len(read_bounded(file, 3)) <= 4
    file.write_bytes(b"\xff")
    with pytest.raises(UnicodeDecodeError):
        read_bounded(file, 100)


def test_an_endless_device_gives_what_was_asked_for() -> None:
    assert read_bounded("/dev/zero", 1 << 20) == "\0" * ((1 << 20) + 1)


def test_a_pipe_to_which_nobody_writes(tmp_path: Path) -> None:
    """It kept every command waiting for ever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(TimeoutError, match="nobody writes to this pipe"):
        read_bounded(pipe, 100, patience=0.05)


def test_a_pipe_to_which_somebody_writes(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("net:\n" * 50_000,))
    writer.start()
    try:
        assert read_bounded(pipe, 1 << 20) == "net:\n" * 50_000
    finally:
        writer.join()


@pytest.mark.parametrize("name", ["missing", "."])
def test_what_cannot_be_read_is_an_oserror(tmp_path: Path, name: str) -> None:
    with pytest.raises((FileNotFoundError, IsADirectoryError)):
        read_bounded(tmp_path / name, 100)

"""Standard streams that are closed, full, endless, or no text: one sentence, never a traceback."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.daemon import PATIENCE, Daemon, Done, environment

MOST = 3 << 30  # bytes of address space: who reads an endless file whole dies of it here, not of the host's
ULNET = "$PY -c 'from ulnet.cli.ulnet import main; raise SystemExit(main())'"
NOT_UTF8 = b"net:\n  - net type: t\xff\n"


def shell(words: str, *, stdin: bytes = b"", **more: str) -> Done:
    """Run a line of sh with `$PY -m` as Python's modules."""
    done = subprocess.run(
        ["sh", "-c", f"ulimit -v {MOST // 1024}; exec {words}"],
        input=stdin,
        env=environment(PY=sys.executable, **more),
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    return Done(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def ctl(daemon: Daemon, words: str, *, stdin: bytes = b"", **more: str) -> Done:
    return shell(f"$PY -m ulnet.cli.lnetctl --socket {daemon.path} {words}", stdin=stdin, **more)


def said_once(done: Done, *words: str) -> bool:
    """One sentence with these words, and no traceback."""
    return "Traceback" not in done.err + done.out and all(word in done.err + done.out for word in words)


@pytest.mark.requirement("cfg-070")
def test_a_command_whose_output_is_closed_is_done_all_the_same(daemon: Daemon) -> None:
    done = ctl(daemon, "net add --nid 127.0.0.7@tcp >&-")
    assert (done.code, done.err) == (0, "")
    assert "127.0.0.7@tcp" in daemon.lnetctl("net", "show").out
    assert said_once(ctl(daemon, "net show >&- 2>&-"))
    refused = ctl(daemon, "net add --nid 127.0.0.7@tcp 2>&-")
    assert (refused.code, refused.out) == (239, "")


def test_output_that_cannot_be_written_is_told(daemon: Daemon) -> None:
    for words in ("net show", "--list-commands", "import --show", "export"):
        done = ctl(daemon, f"{words} >/dev/full", stdin=b"global:\n")
        assert said_once(done, "No space left on device"), (words, done)
        assert done.code == 228, words
    done = shell(f"{ULNET} --help >/dev/full")
    assert done.code == 2 and said_once(done, "No space left on device")
    assert said_once(shell(f"{ULNET} convert --networks tcp >&-"))


def test_the_prompt_and_import_without_standard_input(daemon: Daemon) -> None:
    assert ctl(daemon, "<&-") == Done(0, "", "")
    done = ctl(daemon, "import <&-")
    assert done.code == 256 - 9 and said_once(done, "standard input is closed")
    done = shell(f"{ULNET} check - <&-")
    assert done.code == 2 and said_once(done, "standard input is closed")


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_bytes_that_are_no_text_are_refused_in_every_locale(daemon: Daemon, locale: str) -> None:
    done = ctl(daemon, "import", stdin=NOT_UTF8, LC_ALL=locale)
    assert done.code and said_once(done, "not UTF-8")
    done = shell(f"{ULNET} check -", stdin=NOT_UTF8, LC_ALL=locale)
    assert done.code and said_once(done, "not UTF-8")
    done = ctl(daemon, "", stdin=b"\xff\xfe\nglobal show\n", LC_ALL=locale)
    assert said_once(done, "numa_range", "not a valid command")


@pytest.mark.parametrize("words", ["import /dev/zero", "import </dev/zero", "import -- /dev/zero"])
def test_an_endless_file_is_not_read_to_its_end(daemon: Daemon, words: str) -> None:
    done = ctl(daemon, words)
    assert done.code == 234 and said_once(done, "16777216 are allowed")


def test_lnetd_reads_no_endless_file_either(tmp_path: Path) -> None:
    for option in ("--config", "--modprobe"):
        done = shell(f"$PY -m ulnet.cli.lnetd --socket {tmp_path}/s {option} /dev/zero")
        assert done.code == 1 and said_once(done, "16777216"), option


def test_check_does_not_judge_the_beginning_of_a_file_that_is_too_long(tmp_path: Path) -> None:
    file = tmp_path / "long.yaml"
    file.write_text("global:\n    discovery: 1\n#" + "x" * (1 << 24) + "\nbanana: 1\n")
    done = shell(f"{ULNET} check {file}")
    assert done.code == 2 and said_once(done, "16777216 are allowed")
    assert os.path.getsize(file) > 1 << 24


@pytest.mark.requirement("cfg-170")
def test_an_export_that_cannot_be_written_leaves_the_file_as_it_is(daemon: Daemon, tmp_path: Path) -> None:
    file = tmp_path / "lnet.conf"
    file.write_text("global:\n    discovery: 0\n")
    file.chmod(0o640)
    export = f"exec $PY -m ulnet.cli.lnetctl --socket {daemon.path} export {file}"
    done = shell(f"sh -c 'trap \"\" XFSZ; ulimit -f 1; {export}'")
    assert done.code == 256 - errno.EFBIG and said_once(done, f"{file} cannot be written", "File too large")
    assert file.read_text() == "global:\n    discovery: 0\n"
    assert list(tmp_path.glob("lnet.conf*")) == [file]
    assert ctl(daemon, f"export {file}").code == 0
    assert "net type: lo" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o640


def test_an_export_goes_through_links_and_into_devices(daemon: Daemon, tmp_path: Path) -> None:
    file, link = tmp_path / "lnet.conf", tmp_path / "link"
    link.symlink_to(file)
    assert ctl(daemon, f"export {link}") == Done(0, "", "")
    assert link.is_symlink() and "net type: lo" in file.read_text()
    assert "net type: lo" in ctl(daemon, "export /dev/stdout | cat").out
    done = ctl(daemon, "export /dev/full")
    assert done.code == 228 and said_once(done, "/dev/full cannot be written", "No space left on device")
    done = ctl(daemon, f"export {tmp_path}/none/lnet.conf")
    assert done.code == 254 and said_once(done, "No such file or directory")

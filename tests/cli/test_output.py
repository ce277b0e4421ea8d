"""Output without UTF-8, a reader, or room; files that cannot be written: one sentence at most."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.daemon import PATIENCE, Done, environment
from support.shared import ROOT

SIGNS = "10.0.0.1 → 10.0.0.2: 3 × 5 µs – ▁▄█ …"
PRINT = "import sys; from ulnet.cli.output import run_to_its_end"
PLAN = """\
name: small
groups: {a: [127.0.0.1@tcp], b: [127.0.0.2@tcp]}
tests:
- {name: ping, from: a, to: b}
"""
CAPTURE = ROOT / "tests/data/vectors/b_ping_existing_conn.pcap"
NO_ROOM = "No space left on device"
ULNET = f"{sys.executable} -m ulnet"


def shell(line: str, **more: str) -> Done:
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        env=environment(**more),
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_signs_that_an_encoding_lacks_are_spelt(encoding: str) -> None:
    program = f"{PRINT}; raise SystemExit(run_to_its_end('x', lambda: print({SIGNS + ' é'!r}), lambda n: 2))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(PYTHONIOENCODING=encoding),
        capture_output=True,
        check=False,
    )
    spelt = {
        "ascii": r"10.0.0.1 -> 10.0.0.2: 3 x 5 us - _=# ... \xe9",
        "latin-1": "10.0.0.1 -> 10.0.0.2: 3 × 5 µs - _=# ... é",
        "utf-8": SIGNS + " é",
    }
    assert (done.stderr, done.stdout.decode(encoding)) == (b"", spelt[encoding] + "\n")


def test_a_table_is_shown_where_there_is_no_utf_8() -> None:
    done = shell(f"{ULNET} sim run {ROOT}/scenarios/two-rails.yaml", PYTHONIOENCODING="ascii")
    assert (done.code, done.err) == (0, "") and "all well" in done.out


def test_a_table_of_80_columns_cuts_nothing() -> None:
    done = shell(f"{ULNET} sim run {ROOT}/scenarios/two-rails.yaml", COLUMNS="80")
    table = done.out[: done.out.index("messages ended well")].splitlines()[:-1]
    assert "…" not in done.out and all(len(line) <= 80 for line in table)
    assert all(nid in done.out for nid in ("10.0.0.1@tcp ", "10.1.0.2@tcp1 ")) and "received" in done.out


def test_json_of_a_capture_is_json_in_each_encoding() -> None:
    told = [
        shell(f"{ULNET} decode --json {CAPTURE}", PYTHONIOENCODING=code).out.splitlines()
        for code in ("utf-8", "ascii")
    ]
    assert told[0] != told[1]
    assert [json.loads(line) for line in told[0]] == [json.loads(line) for line in told[1]]


@pytest.mark.parametrize(
    "words", ["ulnet --complete ''", "ulnet.cli.lnetctl --complete net", "ulnet.cli.lst --complete ''"]
)
def test_completion_without_a_reader_says_nothing(words: str) -> None:
    done = shell(f"{sys.executable} -m {words} | true")
    assert done.code in (0, 141) and done.err == ""


def test_what_cannot_be_written_is_not_said_of_what_is_read(tmp_path: Path) -> None:
    done = shell(f"{ULNET} decode {CAPTURE} >/dev/full")
    assert done.code == 2 and done.err == f"ulnet: what it says cannot be written: {NO_ROOM}\n"
    assert shell(f"{ULNET} decode {tmp_path}").err == f"ulnet decode: {tmp_path}: Is a directory\n"
    done = shell(f"{ULNET} decode /proc/self/mem")
    assert done == Done(1, "", "ulnet decode: /proc/self/mem: it cannot be read: Input/output error\n")


def test_a_plan_whose_report_cannot_be_written_is_not_begun(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    for option in ("--json", "--html"):
        done = shell(f"{ULNET} selftest run {plan} {option} {tmp_path}/none/report")
        text = f"ulnet selftest: {tmp_path}/none/report cannot be written: No such file or directory\n"
        assert done == Done(1, "", text)


def test_a_plot_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    done = shell(f"{ULNET} sim run {ROOT}/scenarios/two-rails.yaml --plot {tmp_path}/none/a.png")
    assert done.code == 2
    assert done.err == f"ulnet sim: {tmp_path}/none/a.png cannot be written: No such file or directory\n"


def unread(*words: str) -> Done:
    """Run Python with a standard output that nobody reads any more."""
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        done = subprocess.run(
            [sys.executable, *words],
            stdout=theirs,
            stderr=subprocess.PIPE,
            env=environment(PYTHONUNBUFFERED=""),
            timeout=PATIENCE,
            check=False,
        )
    finally:
        os.close(theirs)
    return Done(done.returncode, "", done.stderr.decode())


@pytest.mark.parametrize("module", ["ulnet sim", "ulnet.cli.lst stat", "ulnet.cli.lnetd"])
def test_help_that_nobody_reads_or_that_has_no_room(module: str) -> None:
    """Before: `Exception ignored in: <_io.TextIOWrapper…`, and status 120."""
    words = ["-m", *module.split(), "--help"]
    assert unread(*words) == Done(141, "", "")
    done = shell(f"{sys.executable} {' '.join(words)} >/dev/full", PYTHONUNBUFFERED="")
    assert done.code in (1, 2) and done.err.endswith(f": what it says cannot be written: {NO_ROOM}\n")


def test_ctrl_c_that_ends_the_reader_as_well_is_no_complaint() -> None:
    raises = "def run():\n print('x')\n raise KeyboardInterrupt"
    program = f"{PRINT}\n{raises}\nraise SystemExit(run_to_its_end('x', run, lambda n: 2))"
    assert unread("-c", program) == Done(130, "", "")


_LOADING = """
import signal, sys
from importlib.abc import MetaPathFinder

class CtrlC(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, CtrlC())
sys.argv[1:] = {words!r}
from ulnet.cli.{command} import main
raise SystemExit(main())
"""


@pytest.mark.parametrize(
    ("command", "module", "words"),
    [
        ("lnetd", "ulnet.cli.lnetd_daemon", ["--help"]),
        ("lst", "ulnet.cli.lst_commands", ["show_session"]),
        ("ulnet", "ulnet.cli.ping", ["ping", "--help"]),
    ],
)
def test_ctrl_c_while_modules_are_loaded_is_no_traceback(command: str, module: str, words: list[str]) -> None:
    """It ends the process as it ends one without a handler: shells show 130."""
    program = _LOADING.format(module=module, command=command, words=words)
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


def test_the_c_locale_gets_other_signs() -> None:
    """Its handler of errors is not that of other encodings without UTF-8."""
    done = shell(f"{ULNET} decode {CAPTURE}", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert (done.code, done.err) == (0, "") and " -> " in done.out and done.out.isascii()


def test_a_table_that_nobody_reads_is_no_failure() -> None:
    """Before: status 1, which means that something failed in the simulation."""
    assert unread("-m", "ulnet", "sim", "run", f"{ROOT}/scenarios/two-rails.yaml") == Done(141, "", "")


def test_a_plot_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    plot = tmp_path / "a.svg"
    words = f"{ULNET} sim run {ROOT}/scenarios/two-rails.yaml --plot {plot}"
    done = shell(f"trap '' XFSZ; ulimit -f 8; {words}")
    assert done.code == 2 and done.err == f"ulnet sim: {plot} cannot be written: File too large\n"
    assert list(tmp_path.iterdir()) == []


def test_a_certificate_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    done = shell(f"trap '' XFSZ; ulimit -f 0; {ULNET} pki ca {tmp_path}")
    assert done == Done(1, "", f"ulnet pki: {tmp_path}/ca.key cannot be written: File too large\n")
    assert list(tmp_path.iterdir()) == []


def test_no_color_shows_no_style() -> None:
    program = "from ulnet.cli.screens import Screen; Screen(force_terminal=True).print('[bold red]x[/]')"
    for no_color, shown in (("1", b"x\n"), ("", b"\x1b[1;31mx\x1b[0m\n")):
        env = environment(NO_COLOR=no_color, TERM="xterm")
        done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, check=True)
        assert done.stdout == shown

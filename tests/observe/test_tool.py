"""Kernel nodes by their own tool: what it prints is read, and one that hangs, dies or lies is told of."""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from observe.conftest import Answers, Tool
from support.daemon import PATIENCE
from support.transcripts import read_steps
from ulnet.cli import health
from ulnet.cli.observed import source_of
from ulnet.observe.families import Families
from ulnet.observe.reading import read_text
from ulnet.observe.snapshot import PARTS, Snapshot
from ulnet.observe.tool import ToolSource, kernel_tool

Make = Callable[[Answers], Tool]
NET = "net:\n-     net type: tcp\n      local NI(s):\n      -     nid: 10.0.0.1@tcp\n            status: up\n"
WELL: dict[str, tuple[str, str, object]] = {"net show -v 4": (NET, "", 0)}


def samples(snapshot: Snapshot) -> dict[tuple[Any, ...], float]:
    """Values by name and labels."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in Families().of(snapshot, 0.0)
        for sample in family.samples
    }


@pytest.mark.parametrize(("release", "host"), [("", "vmA"), ("", "vmB"), ("release-2.15.8", "vmC")])
def test_a_kernel_node_of_the_transcripts_is_read(
    shared: Path, make_tool: Make, release: str, host: str
) -> None:
    answers: dict[str, tuple[str, str, object]] = {}
    for step in read_steps(shared / "reference" / release, ["12_show", "21_after_traffic"]):
        if step.host == host and step.command.startswith("lnetctl "):
            answers[step.command.removeprefix("lnetctl ")] = (step.out, step.err, step.code)
    if "net show -v 4" not in answers:
        pytest.fail(f"no 'net show -v 4' of {host} in {release}")
    tool = make_tool(answers)
    snapshot = ToolSource(tool.command).read(60)
    assert snapshot.up, snapshot.missing
    assert tool.asked == [" ".join(part.words) for part in PARTS.values()]
    found = samples(snapshot)
    nids = {ni["nid"] for _, ni in snapshot.local_nis()}
    assert len(nids) == 2
    for nid in nids:
        place = (("interface", "eth0" if ".110." in nid else "eth1"), ("net", "tcp"), ("nid", nid))
        assert found["lnet_ni_up", *place] == 1
        assert found["lnet_ni_health_value", *place] == 1000
        assert found["lnet_ni_tx_credits_max", *place] == 256
        lines = next(ni for _, ni in snapshot.local_nis() if ni["nid"] == nid)
        assert found["lnet_ni_send_total", *place] == lines["statistics"]["send_count"]
        of_puts = (*sorted((*place, ("direction", "sent"), ("type", "put"))),)
        assert found["lnet_ni_messages_total", *of_puts] == lines["sent_stats"]["put"]
    assert any(name == "lnet_peer_ni_tx_credits_low" for name, *_ in found)
    assert found["lnet_send_total",] == snapshot.shown("statistics")["send_count"]
    if "global show" in answers:
        assert found["lnet_setting", ("name", "retry_count")] == 2


def test_every_transcript_is_read_without_a_complaint(shared: Path) -> None:
    """What any command of theirs printed, well or not, is a document or is refused with words."""
    read = refused = 0
    for step in read_steps(shared / "reference"):
        try:
            document = read_text(step.out.encode())
        except ValueError as bad:
            refused += bool(str(bad))
            continue
        snapshot = Snapshot("it", dict.fromkeys(PARTS, document))
        list(Families().of(snapshot, 0.0))
        read += 1
    assert read > 300
    assert refused < read / 4


def test_a_tool_that_hangs_is_ended_and_left_alone_for_a_while(make_tool: Make) -> None:
    tool = make_tool({**WELL, "peer show -v 4": (NET[:20], "", "hangs")})
    source = ToolSource(tool.command)
    snapshot = source.read(2.0)
    assert snapshot.up
    assert "peer show -v 4: no end in" in snapshot.missing["peer"]
    assert set(snapshot.missing) == set(PARTS) - {"net"}
    assert tool.asked == ["net show -v 4", "peer show -v 4"]
    again = source.read(2.0)
    assert not again.up
    assert "hung: it is tried again in" in again.missing["net"]
    assert len(tool.asked) == 2
    tool.answer(WELL)
    source._again_at = 0.0
    assert source.read(60).up
    assert not source.read(60).missing


def test_pauses_double_up_to_a_minute_and_end_when_all_is_well(make_tool: Make) -> None:
    tool = make_tool({"*": ("", "", "hangs")})
    source = ToolSource(tool.command)
    pauses = []
    for _ in range(8):
        source._again_at = 0.0
        source.read(0.05)
        pauses.append(source._pause)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    tool.answer(WELL)
    source._again_at = 0.0
    source.read(60)
    assert source._pause == 0


def test_none_is_started_while_one_cannot_be_killed(make_tool: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that waits in the kernel, whom no signal reaches."""
    monkeypatch.setattr("ulnet.observe.tool._kill", lambda process: False)
    tool = make_tool({"*": ("", "", "hangs")})
    source = ToolSource(tool.command)
    source.read(1.0)
    source._again_at = 0.0
    assert "was killed, and is still there: process" in source.read(1.0).missing["net"]
    assert len(tool.asked) == 1
    monkeypatch.undo()
    assert isinstance(source._stuck, subprocess.Popen)
    source.close()
    assert source._stuck is None


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((NET[:40], "", "dies"), "ended by SIGKILL"),
        (("", "cannot open /dev/lnet\x1b[2J", 255), "exit status 255: cannot open /dev/lnet?[2J"),
        (("net:\n- net type: [", "", 0), "printed no YAML in line"),
        (("- a\n- b\n", "", 0), "no mapping at its top"),
        (("net: 7\n\tx: 8\n", "", 0), "printed no YAML"),
        (("&a [*a]\n", "", 0), "aliases"),
        (("!!python/object:os.system {}\n", "", 0), "printed no YAML"),
    ],
)
def test_what_is_no_answer_is_told(make_tool: Make, answer: tuple[str, str, object], why: str) -> None:
    snapshot = ToolSource(make_tool({"net show -v 4": answer}).command).read(60)
    assert not snapshot.up
    assert why in snapshot.missing["net"]
    assert set(snapshot.missing) == {"net"}


def test_a_tool_that_prints_without_end_is_ended(make_tool: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ulnet.observe.tool.MAX_TEXT", 1 << 20)
    snapshot = ToolSource(make_tool({"*": ("", "", "endless")}).command).read(60)
    assert snapshot.missing["net"] == "it printed more than 1048576 bytes"


def test_a_child_that_holds_the_pipe_ends_with_the_tool(make_tool: Make, tmp_path: Path) -> None:
    snapshot = ToolSource(make_tool({**WELL, "peer show -v 4": ("", "", "leaves a child")}).command).read(2.0)
    assert snapshot.up
    assert "no end in" in snapshot.missing["peer"]
    give_up = time.monotonic() + PATIENCE
    while left := running(str(tmp_path)):
        assert time.monotonic() < give_up, left
        time.sleep(0.01)


def running(words: str) -> list[str]:
    """Processes with these in their command line."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += [text] if words in (text := file.read_bytes().decode(errors="replace")) else []
    return found


@pytest.mark.parametrize(
    "odd", ["net: 7", "net:\n- 1\n- net type: tcp\n  local NI(s): 5", "net:\n- net type: tcp\n"]
)
def test_documents_of_another_shape_show_nothing(make_tool: Make, odd: str) -> None:
    snapshot = ToolSource(make_tool({"*": (odd, "", 0)}).command).read(60)
    assert snapshot.local_nis() == []
    assert samples(snapshot)["lnet_up",] == 1


def test_a_command_that_is_not_there() -> None:
    snapshot = ToolSource("/no/such/lnetctl").read(5)
    assert snapshot.missing["net"] == "/no/such/lnetctl cannot be run: No such file or directory"
    with pytest.raises(ValueError, match="no command"):
        ToolSource("")


OURS = "#!/usr/bin/python3\nimport sys\nfrom ulnet.cli.lnetctl import main\nsys.exit(main())\n"


def put(folder: Path, text: str) -> Path:
    """An lnetctl in that folder."""
    folder.mkdir()
    tool = folder / "lnetctl"
    tool.write_text(text)
    tool.chmod(0o755)
    return tool


def test_the_kernels_tool_is_the_first_on_path_that_is_not_ulnets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "ours", OURS)
    real = put(tmp_path / "real ones", "#!/bin/sh\necho net:\n")
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, (tmp_path / "ours", tmp_path, real.parent))))
    assert kernel_tool() == str(real)
    source = source_of(argparse.Namespace(file=None, tool=None, kernel=True, socket=None))
    assert "net:" in source.configuration(PATIENCE)


def test_ulnets_own_lnetctl_is_not_taken_for_the_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(put(tmp_path / "ours", OURS).parent))
    assert health.main(["--kernel"]) == 3
    assert "lnetctl is ulnet's own; name the real one by --tool" in "".join(capsys.readouterr())
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="on PATH: there is none"):
        kernel_tool()

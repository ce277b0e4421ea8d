"""What an administrator mistypes: one sentence that names the rule, and nothing is changed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from support.daemon import Daemon
from ulnet.cli import lnetctl_actions
from ulnet.cli.lnetctl import run
from ulnet.cli.lnetctl_grammar import COMMANDS
from ulnet.dlc.client import Client
from ulnet.dlc.model import Request
from ulnet.dlc.protocol import HEADER_SIZE, Answer, Reply, decode_reply, encode_reply


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("export a b", 234, "one file at a time: 'b' is one too many"),
        ("net show -vv", 234, "write a level from 0 to 4"),
        ("net show --verbose=x", 234, "write a level from 0 to 4"),
        ("net add --nid 127.0.0.9@tcp --credits 99999999999999999999999", 234, "is too large"),
        ("net add --nid 127.0.0.9@tcp --credits 4294967296", 234, "use 0 to 2147483647"),
        ("net add --nid 127.0.0.9@tcp --peer-timeout -2", 234, "use 0 to 2147483647"),
        ("set discovery 5", 234, "write 0, 1 or verify"),
        ("set discovery -1", 234, "write 0, 1 or verify"),
        ("set discovery on", 255, "write 0, 1 or verify"),
        ("set retry_count 99999999999999999999", 255, "not too large"),
        ("route add --net tcp5 --gateway 127.0.0.2@tcp --health_sensitivity 0", 234, "1 or more"),
        ("route add --net tcp5 --gateway 127.0.0.2@tcp --health_sensitivity banana", 234, "not a number"),
    ],
)
def test_a_wrong_value_is_told_with_its_rule(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, code: int, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert daemon.lnetctl("net", "add", "--nid", "127.0.0.1@tcp").code == 0
    before = daemon.lnetctl("export", "--backup").out
    files = sorted(tmp_path.iterdir())
    done = daemon.lnetctl(*words.split())
    assert (done.code, done.out) == (code, "")
    assert says in done.err
    assert daemon.lnetctl("export", "--backup").out == before
    assert sorted(tmp_path.iterdir()) == files


def test_numbers_may_be_hexadecimal(daemon: Daemon) -> None:
    """Spec lnetctl.md: decimal and 0x, in all commands."""
    assert daemon.lnetctl("net", "add", "--nid", "127.0.0.1@tcp").code == 0
    for value in ("0x0", "0X1"):
        assert daemon.lnetctl("set", "discovery", value).code == 0
        shown = yaml.safe_load(daemon.lnetctl("global", "show").out)["global"]
        assert shown["discovery"] == int(value, 16)
    assert daemon.lnetctl("ping", "--timeout", "0x5", "127.0.0.1@tcp").code == 0


def test_a_route_in_a_file_keeps_to_the_rule_of_the_command(daemon: Daemon) -> None:
    assert daemon.lnetctl("net", "add", "--nid", "127.0.0.1@tcp").code == 0
    item = "route:\n  - net: tcp5\n    gateway: 127.0.0.2@tcp\n    health_sensitivity: {}\n"
    done = daemon.lnetctl("import", stdin=item.format(0))
    assert done.code == 234 and "1 or more" in done.err
    assert daemon.lnetctl("import", stdin=item.format(3)).code == 0
    assert len(yaml.safe_load(daemon.lnetctl("route", "show").out)["route"]) == 1


def test_the_examples_of_settings_are_taken(daemon: Daemon) -> None:
    """Each is done, and shown as it was set."""
    examples = [one for command in COMMANDS for one in command.examples if one.startswith("lnetctl set ")]
    assert len(examples) > 20
    for example in examples:
        assert daemon.lnetctl(*example.split()[1:]).code == 0, example
        name, value = example.split()[2:]
        shown = yaml.safe_load(daemon.lnetctl("global", "show").out)["global"]
        if name in shown and name != "recovery_interval":
            assert shown[name] == int(value), example


def test_a_source_on_another_net_is_told(daemon: Daemon) -> None:
    """The node is on the target's net: only the source is not."""
    assert daemon.lnetctl("net", "add", "--nid", "127.0.0.1@tcp,127.0.0.2@tcp1").code == 0
    done = daemon.lnetctl("ping", "--source", "127.0.0.2@tcp1", "127.0.0.1@tcp")
    assert done.code == 256 - 113
    assert "source 127.0.0.2@tcp1 is not on tcp: name one that is, or leave the source free" in done.out


def test_notes_do_not_write_to_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """lnetd has a user of its own, which may not have root's lnetctl do what its terminal can."""

    class Liar(Client):
        def request(self, request: Request, timeout: float | None = None) -> Reply:
            answer = Answer({"net": []}, notes=["\x1b[2Jgone\nlnetctl: lies"])
            return decode_reply(encode_reply(answer)[HEADER_SIZE:])

    monkeypatch.setattr(lnetctl_actions, "Client", Liar)
    run(["net", "show"], "/nowhere")
    assert capsys.readouterr().err == "lnetctl: note: \\x1b[2Jgone\\nlnetctl: lies\n"

"""lnetctl's words without a daemon: options as getopt takes them, help, typos, exit statuses."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.daemon import environment, lnetctl
from support.shared import shared_path
from support.transcripts import read_steps
from ulnet import __version__
from ulnet.cli import lnetctl_actions
from ulnet.cli.lnetctl import main
from ulnet.cli.lnetctl_grammar import COMMANDS, COMMON, GROUPS, Command, commands_of
from ulnet.cli.lnetctl_grammar_fault import LCTL_FAULTS
from ulnet.cli.lnetctl_options import BadValue, UsageError, parse
from ulnet.dlc import model
from ulnet.dlc.model import Ping
from ulnet.dlc.tunables import TUNABLES

REAL_COMMANDS = (
    "quit exit help version list-commands lnet route net routing set import export stats debug global peer"
    " ping discover service-id udsp fault setup-mrrouting setup-sysctl cpt-of-nid"
)
SLOW = (
    "asyncio pyroute2 rich yaml argparse logging typing_extensions"
    " ulnet.core ulnet.lnd ulnet.node ulnet.host ulnet.nid"
)
BUILT = list(COMMANDS)
NET_ADD = next(command for command in COMMANDS if command.words == ("net", "add"))
NET_SHOW = next(command for command in COMMANDS if command.words == ("net", "show"))
PING = next(command for command in COMMANDS if command.words == ("ping",))


@pytest.mark.parametrize(
    ("words", "options", "operands"),
    [
        ("", {}, []),
        ("--net tcp --if eth0", {"net": "tcp", "if": "eth0"}, []),
        ("--net=tcp --if=", {"net": "tcp", "if": ""}, []),
        ("--peer-t -1", {"peer-timeout": "-1"}, []),
        ("--peer-buffer 3 --cr 4", {"peer-buffer-credits": "3", "credits": "4"}, []),
        ("--net tcp --net tcp1", {"net": "tcp1"}, []),
        ("--skip", {"skip-mr-route-setup": "yes"}, []),
        ("-h", {"help": "yes"}, []),
        ("--he", {"help": "yes"}, []),
        ("--net --if", {"net": "--if"}, []),
    ],
)
def test_options_as_getopt_takes_them(words: str, options: dict[str, str], operands: list[str]) -> None:
    parsed = parse(NET_ADD, words.split())
    assert (parsed.options, parsed.operands) == (options, operands)


@pytest.mark.parametrize(
    ("command", "words", "options"),
    [
        ("net add", "-n tcp -i eth0,eth1", {"net": "tcp", "if": "eth0,eth1"}),
        ("net del", "-n tcp -i eth0", {"net": "tcp", "if": "eth0"}),
        ("net show", "-n tcp -n tcp1 -v 2", {"net": "tcp,tcp1", "verbose": "2"}),
        ("net set", "-n 10.0.0.1@tcp --health 3", {"nid": "10.0.0.1@tcp", "health": "3"}),
        ("peer add", "-p 10.0.0.1@tcp -n 10.0.0.2@tcp", {"prim_nid": "10.0.0.1@tcp", "nid": "10.0.0.2@tcp"}),
        ("peer del", "-p 10.0.0.1@tcp", {"prim_nid": "10.0.0.1@tcp"}),
        ("peer show", "-n 10.0.0.1@tcp -v", {"nid": "10.0.0.1@tcp", "verbose": ""}),
        ("peer set", "-n 10.0.0.1@tcp", {"nid": "10.0.0.1@tcp"}),
        (
            "route add",
            "-n tcp1 -g 10.0.0.1@tcp -p 2",
            {"net": "tcp1", "gateway": "10.0.0.1@tcp", "priority": "2"},
        ),
        ("route del", "-n tcp1 -g 10.0.0.1@tcp", {"net": "tcp1", "gateway": "10.0.0.1@tcp"}),
        (
            "route show",
            "-n tcp1 -g 10.0.0.1@tcp -v",
            {"net": "tcp1", "gateway": "10.0.0.1@tcp", "verbose": ""},
        ),
        ("udsp add", "-s tcp -p 1 -i 0", {"src": "tcp", "priority": "1", "idx": "0"}),
        ("udsp show", "-i 1 -v", {"idx": "1", "verbose": ""}),
        ("ping", "-s 10.0.0.1@tcp", {"source": "10.0.0.1@tcp"}),
        ("debug peer", "-n 10.0.0.1@tcp", {"nid": "10.0.0.1@tcp"}),
    ],
)
def test_options_have_short_names(command: str, words: str, options: dict[str, str]) -> None:
    (found,) = commands_of(*command.split())
    assert parse(found, words.split()).options == options


def short_options_of_the_specification() -> dict[tuple[str, ...], dict[str, str]]:
    """By command, letter to name: as `../shared/spec` has them in its tables and texts."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    group = ""
    for line in shared_path("spec/lnetctl.md").read_text().splitlines():
        if line.startswith("#"):
            group = line.lstrip("# ")
        pairs = dict(re.findall(r"(?<![\w-])-(\w)/--([a-z_-]+)", line))
        if line.startswith("| ") and pairs:
            word = line.split("|")[1].strip()
            found[(word,) if group == "Other" else (group, word)] = pairs
        for command, first, second in re.findall(r"`([a-z]+ [a-z]+) -(\w)/-(\w)`", line):
            found[tuple(command.split())] = {first: "", second: ""}
    kinds = ("drop", "delay")
    for line in shared_path("spec/net-fault.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if match := re.match(r"\| --([a-z_]+)[^|]*\| -(\w) ", line):
            for kind, use in zip(kinds, cells[2:4], strict=True):
                if use and use not in ("–", "internal") and f"`{match[2]}` missing from {kind}" not in line:
                    found.setdefault(("fault", kind, "add"), {})[match[2]] = match[1]
        elif cells[0].startswith("del:"):
            pair = re.findall(r"--([a-z]+)/-(\w)|(?<![\w-])-(\w)(?!\w)", cells[0])
            for kind in kinds:
                names = found["fault", kind, "add"]
                found["fault", kind, "del"] = {
                    letter or other: name or names[other] for name, letter, other in pair
                }
    return found


def test_short_options_are_those_of_the_specification() -> None:
    found = short_options_of_the_specification()
    assert len(found) == 9 and sum(map(len, found.values())) == 34
    for words, letters in found.items():
        (command,) = commands_of(*words)
        ours = {option.short: option.name for option in command.options if option.short}
        if words[0] == "fault":
            assert ours == letters, words  # all that there are
        for letter, name in letters.items():
            assert letter in ours and ours[letter].startswith(name), (words, letter)


@pytest.mark.parametrize("release", ["", "release-2.15.8"])
def test_short_options_that_real_nodes_took_are_taken(release: str) -> None:
    taken: set[tuple[str, ...]] = set()
    for file in sorted((shared_path("reference") / release).glob("*.txt")):
        text = file.read_text(errors="replace")
        for line in re.findall(r"^=== \[\w+\] # (.*)$", text, re.MULTILINE):
            for part in re.findall(r"lnetctl ((?:[^;|<>&$\"']|\"[^\"]*\"|'[^']*')*)", line):
                taken |= take(shlex.split(part))
        for kind, action, usage in re.findall(r"lnetctl fault (\w+) (add|del) (.*<.*)", text):
            (command,) = commands_of("fault", kind, action)
            for letter, value in re.findall(r"-(\w) <(\w+)>", usage):
                option = next((one for one in command.options if one.short == letter), None)
                if (kind, letter) != ("delay", "i"):  # told, and not taken there
                    assert option is not None and option.name[0] == value[0], usage
    assert {("net", "show", "v"), ("fault", "drop", "add", "r"), ("peer", "show", "v")} <= taken


def take(words: list[str]) -> set[tuple[str, ...]]:
    """The short options of a command of a real node, each behind the words; all of them are ours."""
    for count in (3, 2, 1):
        found = [one for one in commands_of(*words[:count]) if one.words == tuple(words[:count])]
        short = [word[1] for word in words[count:] if re.match(r"-[a-z]", word)]
        if found and short:
            known = {option.short for option in (*found[0].options, *COMMON)}
            assert known.issuperset(short), words
            return {(*found[0].words, letter) for letter in short}
    return set()


def test_every_command_that_shows_something_takes_json() -> None:
    for command in COMMANDS:
        if command.words[-1] in ("show", "list") or command.words[0] in ("stats", "cpt-of-nid", "explain"):
            takes = any(option.name == "json" for option in command.options)
            assert takes == (command.words[-1] != "reset"), command.words


@pytest.mark.parametrize(
    ("words", "options", "operands"),
    [
        ("10.0.0.1@tcp -t 3 10.0.0.2@tcp", {"timeout": "3"}, ["10.0.0.1@tcp", "10.0.0.2@tcp"]),
        ("-t3 -s 10.0.0.3@tcp", {"timeout": "3", "source": "10.0.0.3@tcp"}, []),
        ("-- -t 3", {}, ["-t", "3"]),
        ("-", {}, ["-"]),
    ],
)
def test_operands_may_stand_anywhere(words: str, options: dict[str, str], operands: list[str]) -> None:
    parsed = parse(PING, words.split())
    assert (parsed.options, parsed.operands) == (options, operands)


@pytest.mark.parametrize(
    ("words", "level"),
    [
        ("", 0),
        ("-v", 1),
        ("-v 2", 2),
        ("-v2", 2),
        ("--verbose", 1),
        ("--verbose 3", 3),
        ("--verbose=4", 4),
        ("--verb 0x2", 2),
        ("-v 5", 4),
        ("-v -1", 0),
        ("-v --net tcp", 1),
        ("--net tcp -v", 1),
        ("-v 2 --net tcp", 2),
        ("-h -v 3", 3),
    ],
)
def test_a_level_is_a_word_of_its_own_that_may_be_missing(words: str, level: int) -> None:
    assert parse(NET_SHOW, words.split()).level("verbose") == level


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--bogus", "unrecognized option '--bogus'"),
        ("--nett tcp", "unrecognized option '--nett' (did you mean '--net'?)"),
        ("--n tcp", "option '--n' is ambiguous; possibilities: '--net' '--nid'"),
        ("--net", "option '--net' requires an argument"),
        ("--skip-mr-route-setup=1", "option '--skip-mr-route-setup' doesn't allow an argument"),
        ("-x", "invalid option -- 'x'"),
        ("tcp1", "unexpected word 'tcp1'"),
        ("--net tcp1 eth1", "unexpected word 'eth1'"),
    ],
)
def test_wrong_words_are_named(words: str, text: str) -> None:
    with pytest.raises(UsageError) as wrong:
        parse(NET_ADD, words.split())
    assert str(wrong.value) == text


def test_a_number_of_thirty_digits_is_too_large() -> None:
    with pytest.raises(BadValue, match="too large"):
        parse(NET_ADD, ["--credits", "9" * 30]).number("credits")


@pytest.mark.parametrize("text", ["", "banana", "1e3", "1.5", "--5", "٣"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match=r"--credits .* is not a number"):
        parse(NET_ADD, [f"--credits={text}"]).number("credits")


@given(st.sampled_from(BUILT), st.lists(st.text(max_size=12), max_size=6))
def test_no_words_make_anything_but_a_usage_error(command: Command, words: list[str]) -> None:
    try:
        parsed = parse(command, words)
    except UsageError:
        return
    assert set(parsed.options) <= {option.name for option in command.options} | {"help", "socket"}


@given(st.lists(st.sampled_from(["net", "add", "-v", "--", "help", "--net", "ping", "-", "--socket", "x"])))
def test_the_command_line_always_ends_with_a_status(words: list[str]) -> None:
    if words:
        assert 0 <= main(["--socket", "/nonexistent/lnetd.sock", "net", *words]) <= 255


# Help ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", BUILT, ids=lambda command: " ".join(command.words))
def test_every_command_explains_itself_with_an_example(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.words, "--help"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.startswith(" ".join(command.words))
    assert f"example: lnetctl {' '.join(command.words)}" in shown.out
    assert all(f"--{option.name}" in shown.out for option in command.options)
    assert main(["help", *command.words]) == 0
    assert capsys.readouterr().out == shown.out


def test_every_example_in_help_is_a_command_that_parses() -> None:
    for command in BUILT:
        for example in command.examples:
            words = shlex.split(re.split(r" [<>] ", example)[0])
            assert tuple(words[1 : 1 + len(command.words)]) == command.words
            parse(command, words[1 + len(command.words) :])


def test_every_command_has_an_action_and_every_action_a_command() -> None:
    commands = (*BUILT, *LCTL_FAULTS)
    made = {*lnetctl_actions._BUILDERS, *lnetctl_actions._RUNNERS}
    assert {command.action for command in commands if command.action} - {"routing_show"} == made


_OPTIONS_OF_NIS = {name.replace("_", "-") for name in TUNABLES}


def test_the_options_of_a_command_are_the_fields_of_its_request() -> None:
    for command in BUILT:
        if command.action not in lnetctl_actions._BUILDERS and command.request:
            fields = {option.field or option.name for option in command.options} - {"json", *_OPTIONS_OF_NIS}
            fields |= {"nids"} if command.operands else set()
            assert fields <= set(getattr(model, command.request).__struct_fields__), command.words


def test_the_commands_of_the_real_tool_are_all_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list-commands"]) == 0
    listed = set(capsys.readouterr().out.split())
    assert set(REAL_COMMANDS.split()) <= listed


def test_the_options_of_the_real_tool_are_all_known() -> None:
    text = shared_path("reference/10_help.txt").read_text()
    assert "=== [vmA] # lnetctl net add --help" in text
    later = {"ip2nets", "auth-key", "traffic-class"}  # which the real tool does not take; other drivers
    for command in BUILT:
        name = " ".join(command.words)
        start = text.find(f"# lnetctl {name} --help")
        if start < 0:
            continue
        block = text[start : text.index("--- stderr", start)]
        real = {word[2:].rstrip(":") for word in block.split() if re.match("--[a-z]", word)}
        real -= {"help"} | later
        known = {option.name for option in command.options}
        assert all(known & set(name.split("|")) for name in real), name


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["help"], ["--help"], ["-h"]):
        assert main(words) == 0
        assert "usage: lnetctl" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"lnetctl {__version__} (ulnet)\n"


@pytest.mark.parametrize("group", [name for name in GROUPS if len(commands_of(name)) > 1])
def test_half_a_command_shows_the_other_halves(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([group]) == 234
    shown = capsys.readouterr().out
    assert all(" ".join(command.words) in shown for command in commands_of(group))


# Typos ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["bogus"], "lnetctl: 'bogus' is not a valid command. See 'lnetctl --list-commands'."),
        (["pier", "show"], "lnetctl: 'pier' is not a valid command. did you mean 'lnetctl peer'?"),
        (["net", "shwo"], "lnetctl: 'shwo' is not a valid command. did you mean 'lnetctl net show'?"),
        (["help", "bogus"], "lnetctl: 'bogus' is not a valid command. See 'lnetctl --list-commands'."),
        (["net", "add", "--bogus"], "add: unrecognized option '--bogus'. See 'lnetctl net add --help'."),
        (
            ["peer", "show", "--nid"],
            "show: option '--nid' requires an argument. See 'lnetctl peer show --help'.",
        ),
        (["stats", "show", "x"], "show: unexpected word 'x'. See 'lnetctl stats show --help'."),
        (["--bogus", "net"], "lnetctl: unrecognized option '--bogus'. See 'lnetctl --help'."),
        (["--socket"], "lnetctl: option '--socket' requires an argument. See 'lnetctl --help'."),
        (["--socket=", "net", "show"], "lnetctl: --socket names no path. See 'lnetctl --help'."),
    ],
)
def test_typos_fail_with_a_way_out(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 255
    shown = capsys.readouterr()
    assert shown.err == text + "\n"
    assert shown.out == ""


@pytest.mark.parametrize(
    ("word", "status"), [("service-id", 254), ("setup-mrrouting", 161), ("setup-sysctl", 161)]
)
def test_what_is_about_the_kernel_says_so(word: str, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word]) == status
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.startswith('error:\n    msg: "') and shown.err.count("\n") == 2


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("net add --credits banana", "add net --credits 'banana' is not a number"),
        ("net show -vx", "show net --verbose 'x': write a level from 0 to 4"),
        ("ping", "manage ping no NID is named"),
        ("ping --timeout soon 10.0.0.1@tcp", "manage ping --timeout 'soon' is not a number of seconds"),
        ("ping --timeout 9999 10.0.0.1@tcp", "manage ping --timeout 9999 is too long"),
        ("ping no.such.host.invalid@tcp", "manage ping no.such.host.invalid@tcp: no host is called"),
    ],
)
def test_values_that_cannot_be_are_errors_in_yaml(
    words: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 234
    verb, entity, descr = text.split(" ", 2)
    start = f'---\n{verb}:\n-     {entity}:\n      errno: -22\n      descr: ! "{descr}'
    assert capsys.readouterr().err.startswith(start)


def test_without_a_daemon_errors_have_their_form_and_say_what_to_do(
    capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = str(tmp_path_factory.mktemp("none") / "lnetd.sock")
    way_out = f"no lnetd answers on {path}: start it with `lnetd`, or name its socket with --socket PATH or"
    assert main(["--socket", path, "net", "show"]) == 145
    assert capsys.readouterr().err == (
        f'---\nshow:\n-     net:\n      errno: -111\n      descr: ! "{way_out} ULNET_SOCKET"\n...\n'
    )
    assert main(["stats", "show", "--socket", path]) == 145
    assert capsys.readouterr().err == (
        f'show:\n    - statistics:\n          errno: -111\n          descr: "{way_out} ULNET_SOCKET"\n'
    )


def test_a_host_name_stands_for_its_address() -> None:
    words = ["localhost@tcp1,10.0.0.[1-2]@tcp", "0@lo", "fd00::1"]
    request = lnetctl_actions._BUILDERS["ping"](parse(PING, words))
    assert isinstance(request, Ping)
    assert request.nids == ["127.0.0.1@tcp1", "10.0.0.[1-2]@tcp", "0@lo", "fd00::1"]


# Prompt, start-up ----------------------------------------------------------------------------------------


def test_the_prompt_runs_line_by_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = "# a comment\n\nversion\nnet 'add\nbogus\nquit\nversion\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    assert main([]) == 255
    shown = capsys.readouterr()
    assert shown.out == f"lnetctl {__version__} (ulnet)\n"
    assert shown.err.splitlines() == [
        "lnetctl: the line cannot be read: No closing quotation",
        "lnetctl: 'bogus' is not a valid command. See 'lnetctl --list-commands'.",
    ]


def test_no_input_ends_well() -> None:
    assert lnetctl() == (0, "", "")


def test_nothing_slow_is_loaded() -> None:
    code = (
        "import sys\n"
        "from ulnet.cli.lnetctl import main\n"
        "main(['--socket', '/nonexistent/s', 'net', 'show'])\n"
        f"print([name for name in {SLOW.split()} if name in sys.modules])\n"
    )
    path = f"import sys; sys.path.insert(0, {environment()['PYTHONPATH']!r})\n"
    words = [sys.executable, "-I", "-c", path + code]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_transcripts_name_no_unknown_command() -> None:
    for step in read_steps(shared_path("reference")):
        words = step.command.split()
        if words[0] == "lnetctl" and len(words) > 1 and words[1] not in ("bogus",) and words[1][0] != "-":
            assert words[1] in GROUPS, step.command

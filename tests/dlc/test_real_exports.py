"""What real nodes export and show is read back without a complaint (../shared/reference)."""

from __future__ import annotations

import re

import pytest
from msgspec import to_builtins

from support.shared import shared_path
from support.transcripts import read_steps
from ulnet.dlc.config import read_config
from ulnet.dlc.model import RoutingSet
from ulnet.dlc.model_policy import UdspShow
from ulnet.node.dry_run import dry_run, invented_links

SHOWN = re.compile(
    r"^=== \[\w+\] # lnetctl (?P<command>[^;\n]*\b(?:show|export)\b[^;\n]*)\n--- stdout\n"
    r"(?P<out>(?:net|peer|route|routing|global|udsp|statistics):\n(?s:.*?))--- stderr\n",
    re.MULTILINE,
)


@pytest.mark.requirement("HLD-import", "cfg-170")
@pytest.mark.parametrize("release", ["", "release-2.15.8"])
def test_what_a_real_node_exports_and_shows_can_be_imported(release: str) -> None:
    folder = shared_path("reference") / release
    read = 0
    for file in sorted(folder.glob("*.txt")):
        for match in SHOWN.finditer(file.read_text(errors="replace")):
            for verb in ("add", "del", "show", "exec"):
                config = read_config(match["out"], verb)
                assert not config.errors, (file.name, match["command"], verb, config.errors)
            read += 1
    assert read > 25


@pytest.mark.requirement("HLD-import")
@pytest.mark.parametrize(("release", "host"), [("", "vmA"), ("release-2.15.8", "vmC")])
async def test_what_a_real_node_with_rules_exports_can_be_applied(release: str, host: str) -> None:
    """2.15 writes `NA` for patterns that a rule has not, and its own loopback among its peers."""
    steps = read_steps(shared_path("reference") / release, ["16_udsp"])
    (text,) = [one.out for one in steps if (one.command, one.host) == ("lnetctl export --backup", host)]
    config = read_config(text)
    async with dry_run(invented_links(step.request for step in config.steps)) as admin:
        assert await admin.apply(config.steps) == []
        rules = to_builtins((await admin.handle(UdspShow())).document)["udsp"]
        assert len(rules) == text[text.index("\nudsp:") :].count("- idx:") > 3
        assert "NA" not in {rule.get(word) for rule in rules for word in ("src", "dst", "rte")}


@pytest.mark.parametrize(
    ("written", "on"),
    [("0", False), ("1", True), ("2", False), ("3", True), ("true", True), ("False", False)],
)
def test_routing_is_on_by_its_lowest_bit(written: str, on: bool) -> None:
    """Today's kernel prints 2 and 3: off and on, and the buffers are there."""
    for text in (f"routing:\n    enable: {written}\n", f"routing:\n    - enable: {written}\n"):
        config = read_config(text)
        assert (config.errors, [step.request for step in config.steps]) == ([], [RoutingSet(on)])


@pytest.mark.parametrize("written", ["4", "-1", "on", "1.0"])
def test_routing_takes_nothing_else(written: str) -> None:
    config = read_config(f"routing:\n    enable: {written}\n")
    assert (len(config.errors), config.steps) == (1, [])
    assert "enable" in config.errors[0].descr


def test_module_parameters_are_known_when_they_are_taken_for_yaml() -> None:
    config = read_config('# of a site\noptions lnet networks="tcp0(eth0)"\noptions ksocklnd credits=9\n')
    assert [item.descr for item in config.errors] == [
        "line 2: these are module parameters: make YAML of them with `ulnet convert`"
    ]


def test_surrogates_are_no_text() -> None:
    config = read_config("net:\n  - net type: t\udcff\n")
    assert [item.errno for item in config.errors] == [-22]
    assert "line 2" in config.errors[0].descr and "UTF-8" in config.errors[0].descr

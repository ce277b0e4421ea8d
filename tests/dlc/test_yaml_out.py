"""The emitter prints what the real tool prints: every transcript, byte for byte; and any value readably."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from support.transcripts import Step
from ulnet.dlc.errors import ErrorItem
from ulnet.dlc.yaml_out import LIBRARY, NETLINK, PING, Layout, emit, emit_document, emit_errors

LAYOUTS = (NETLINK, PING, LIBRARY)
SHOWS = (
    "lnetctl net show",
    "lnetctl peer show",
    "lnetctl peer list",
    "lnetctl route show",
    "lnetctl routing show",
    "lnetctl stats show",
    "lnetctl global show",
    "lnetctl udsp show",
    "lnetctl ping",
    "lnetctl discover",
    "lnetctl export",
    "lnetctl import --show",
)


def documents(text: str) -> list[dict[str, Any]]:
    try:
        found = list(yaml.safe_load_all(text))
    except yaml.YAMLError:
        return []
    return found if all(isinstance(one, dict) for one in found) else []


@pytest.mark.requirement("cfg-010", "cfg-045")
def test_every_document_of_real_nodes_is_emitted_byte_for_byte(transcript: list[Step]) -> None:
    compared: dict[str, int] = dict.fromkeys(SHOWS, 0)
    for step in transcript:
        show = next((start for start in SHOWS if step.command.startswith(start)), None)
        found = documents(step.out)
        if show is None or not found:
            continue
        if "lnetctl export" in step.command and "errno" in step.out:
            continue  # an export of a node that is down: several sections called show
        assert "".join(map(emit_document, found)) == step.out, f"{step.file}: {step.command}"
        compared[show] += 1
    assert {show for show, count in compared.items() if not count} <= {"lnetctl udsp show"}
    assert sum(compared.values()) >= 120


def as_items(text: str) -> list[ErrorItem]:
    """Errors in either form; none if the text is something else."""
    items = []
    for document in documents(text):
        for verb, entries in document.items():
            for entry in entries if isinstance(entries, list) else []:
                entity = next(iter(entry))
                fields = entry[entity] or entry
                if not fields.get("descr"):
                    return []
                items.append(ErrorItem(verb, entity, fields["errno"], fields["descr"], fields.get("seq_no")))
    return items


def test_every_error_of_real_nodes_is_emitted_byte_for_byte(transcript: list[Step]) -> None:
    compared = {"---\n": 0, "show": 0, "add:": 0}
    for step in transcript:
        items = as_items(step.err)
        if not items or not re.search(r'descr: (! )?"', step.err) or ";" in step.command:
            continue  # nothing, or what lnetctl's own option parser says: without quotes
        assert emit_errors(items) == step.err, f"{step.file}: {step.command}"
        compared[step.err[:4]] += 1
    assert compared["---\n"] >= 50
    assert compared["show"] >= 2
    assert compared["add:"] >= 8


def test_failed_pings_are_laid_out_as_on_real_nodes(transcript: list[Step]) -> None:
    step = next(one for one in transcript if one.command == "lnetctl ping 192.168.110.250@tcp")
    failed = {
        "ping": None,
        "errno": -113,
        "descr": "failed to ping 192.168.110.250@tcp: No route to host",
    }
    assert emit({"manage": [failed]}, PING) == step.out


def test_the_three_layouts_in_small() -> None:
    value = {"net": [{"nid": "0@lo", "interfaces": {0: "eth0"}}, {"nid": "::1@tcp", "up": True}]}
    assert emit(value, NETLINK) == (
        "net:\n-     nid: 0@lo\n      interfaces:\n            0: eth0\n-     nid: ::1@tcp\n      up: true\n"
    )
    assert emit(value, PING) == (
        "net:\n- nid: 0@lo\n  interfaces:\n    0: eth0\n- nid: ::1@tcp\n  up: true\n"
    )
    assert emit(value, LIBRARY) == (
        "net:\n    - nid: 0@lo\n      interfaces:\n          0: eth0\n    - nid: ::1@tcp\n      up: true\n"
    )


def test_sections_without_content_are_left_out() -> None:
    assert emit_document({"net": [], "peer": [], "global": {"discovery": 1}}) == "global:\n    discovery: 1\n"
    assert emit_document({}) == ""


def test_error_forms() -> None:
    items = [
        ErrorItem("show", "statistics", -100, "down"),
        ErrorItem("show", "global", -100, 'say "why"', seq_no=3),
        ErrorItem("add", "net", -22, "bad"),
    ]
    assert emit_errors(items) == (
        "show:\n"
        "    - statistics:\n"
        "          errno: -100\n"
        '          descr: "down"\n'
        "    - global:\n"
        "          seq_no: 3\n"
        "          errno: -100\n"
        '          descr: "say \\"why\\""\n'
        "---\n"
        "add:\n"
        "-     net:\n"
        "      errno: -22\n"
        '      descr: ! "bad"\n'
        "...\n"
    )


@pytest.mark.parametrize(("errno", "code"), [(-22, 234), (-100, 156), (-108, 148), (-256, 255), (0, 255)])
def test_no_error_ends_with_exit_status_0(errno: int, code: int) -> None:
    assert ErrorItem("add", "net", errno, "").exit_code == code


names = st.text(max_size=10).filter(lambda name: name != "descr")  # whose form is another, see below
scalars = st.one_of(st.text(max_size=40), st.integers(), st.booleans())
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(st.one_of(scalars, st.dictionaries(names, inner, min_size=1, max_size=3))),
        st.dictionaries(names, inner, max_size=3),
    ),
    max_leaves=12,
)


def unquoted_numbers(value: Any) -> Any:
    """Keys made of digits come back as numbers: that is how `interfaces` is written."""
    if isinstance(value, dict):
        return {str(key): unquoted_numbers(item) for key, item in value.items()}
    return [unquoted_numbers(item) for item in value] if isinstance(value, list) else value


@given(st.dictionaries(names, values, max_size=4), st.sampled_from(LAYOUTS))
def test_what_is_emitted_reads_back_as_the_same_value(value: dict[str, Any], layout: Layout) -> None:
    text = emit(value, layout)
    again = yaml.safe_load(text)
    assert unquoted_numbers(again or {}) == unquoted_numbers(value)


AWKWARD = (
    "on off yes no true null ~ 010 0x1f 1e3 12:30 1.5 .5 -1 +1 = << 2026-11-21 0o7 1_000 - ? * & ! | > ' % @"
)


@pytest.mark.parametrize(
    "text", [*AWKWARD.split(), "", " a", "a ", "a: b", "a #b", "[0]", "{a}", "- a", "a:", "#a"]
)
def test_text_that_yaml_would_take_for_something_else_stays_text(text: str) -> None:
    assert yaml.safe_load(emit({"value": text}, NETLINK)) == {"value": text}


@pytest.mark.parametrize(
    "text", ["192.168.110.[0-255]@tcp", "fd00:110::12@tcp", "::1@tcp", "eth0", "0@lo", "<?>"]
)
def test_nids_and_interfaces_need_no_quotes(text: str) -> None:
    assert emit({"nid": text}, NETLINK) == f"nid: {text}\n"
    assert yaml.safe_load(emit({"nid": text}, NETLINK)) == {"nid": text}


@given(st.text("aeEfnNoOxyY01289._/@() -:[#", max_size=8), st.sampled_from(LAYOUTS))
def test_text_that_looks_like_something_else_stays_text(text: str, layout: Layout) -> None:
    """Whatever way it is found out that it needs quotes, or none."""
    emitted = emit({"thing": {"value": text, "values": [text]}}, layout)
    assert yaml.safe_load(emitted) == {"thing": {"value": text, "values": [text]}}


@given(st.text(max_size=60), st.sampled_from(LAYOUTS))
def test_descriptions_read_back_whatever_a_peer_put_into_them(text: str, layout: Layout) -> None:
    words = f"failed: {text}"
    assert yaml.safe_load(emit({"descr": words}, layout)) == {"descr": words}

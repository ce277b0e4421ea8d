"""Text of `lnetctl` is read as a YAML parser reads it, quickly where it is as plain as the tool writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from support.transcripts import read_steps
from ulnet.dlc.yaml_out import emit_document
from ulnet.observe import reading
from ulnet.observe.reading import read_text

SHOWS = ("net show", "peer show", "route show", "routing show", "stats show", "global show", "debug recovery")


def general(text: str) -> Any:
    """What a YAML parser makes of it; the exception where it makes nothing."""
    try:
        return yaml.load(text, yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError) as bad:
        return bad


def quick(text: str) -> Any:
    """What the quick way makes of it; None where it leaves the text to the other."""
    try:
        return reading._plain(text)
    except reading._NotPlainError:
        return None


@pytest.mark.parametrize("release", ["", "release-2.15.8"])
def test_every_transcript_says_the_same_both_ways(shared: Path, release: str) -> None:
    """All that real tools printed; what `show` commands printed is read quickly."""
    folder = shared / "reference" / release
    count = 0
    for path in sorted(folder.glob("*.txt")):
        if b"\x90" in path.read_bytes():  # of packets
            continue
        for step in read_steps(folder, [path.stem]):
            found, wanted = quick(step.out), general(step.out)
            if found is not None:
                count += 1
                assert repr(found) == repr(wanted or {}), (path.name, step.command)
            elif step.code == 0 and step.command.removeprefix("lnetctl ").startswith(SHOWS):
                assert not isinstance(wanted, dict), (path.name, step.command)
    assert count > 80


def test_every_yaml_file_of_the_reference_is_read_or_refused_with_words(shared: Path) -> None:
    read, told = [], []
    for path in sorted((shared / "reference" / "yaml").glob("*.yaml")):
        try:
            document = read_text(path.read_bytes())
        except ValueError as bad:
            told.append(str(bad))
            continue
        assert document == (general(path.read_text()) or {})
        read.append(path.stem)
    assert {"net_add", "peer_add", "route_add", "global", "udsp", "ping", "empty"} <= set(read)
    assert told and all("no YAML" in why or "no mapping" in why for why in told)


WORDS = st.sampled_from(
    [
        *("nid", "net type", "local NI(s)", "health value", "0", "1", "NID-0", "cpt[0]", "yes", "on", "null"),
        *("y", "Multi-Rail", "0x1", "1e3", "12", "-5", "007", "1:30", "10.0.0.1@tcp", "fe80::1@tcp1", "~"),
        *("[0]", '"[0]"', '"a b"', "'x'", "up", "true", "No", "192.168.[0-3].1@tcp", "a: b", "# c", "a #b"),
        *("*a", "&a", "|", ">", "2001-01-01", ".5", "a,b", "{}", "[]", "- x", "!!str 1", "1_000", "@", "%"),
    ]
)
PLAIN = st.sampled_from(["nid", "net type", "local NI(s)", "0", "cpt[0]"])
VALUES = st.sampled_from(["", "", " 7", " 10.0.0.1@tcp", ' "[0]"', " up"])
LINES = st.lists(  # of which many make YAML, and some that is plain
    st.builds(
        "{}{}{}:{}{}".format,
        st.sampled_from(["", "", "  ", "    "]),
        st.sampled_from(["", "", "- "]),
        st.one_of(PLAIN, PLAIN, WORDS),
        st.one_of(VALUES, VALUES, WORDS.map(" {}".format)),
        st.sampled_from([*[""] * 8, " ", "\r", "\n"]),
    ),
    max_size=6,
)


@given(LINES)
def test_what_is_read_quickly_is_what_yaml_says(lines: list[str]) -> None:
    text = "\n".join(lines)
    found = quick(text)
    if found is not None:
        assert repr(found) == repr(general(text) or {})


TREES = st.recursive(
    st.one_of(
        st.integers(-5, 1 << 40),
        st.booleans(),
        st.sampled_from(["up", "tcp", "10.0.0.1@tcp", "[0]", "", "7"]),
    ),
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from(["nid", "net", "peer ni", "tunables"]), inner, min_size=1),
        st.lists(st.dictionaries(st.sampled_from(["nid", "status"]), inner, min_size=1), min_size=1),
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["net", "peer", "udsp"]), TREES))
def test_our_own_documents_come_back(document: dict[str, Any]) -> None:
    assert read_text(emit_document(document).encode()) == (general(emit_document(document)) or {})


@pytest.mark.parametrize(
    "text",
    ["a:\n- b: 1\nc: 2\n", "a:\n- b: 1\n- b:\n    c: 3\n\nd:\n", 'a:\n    -   b: "[0]"\n        c: 0@lo\n'],
)
def test_lists_may_be_as_far_left_as_their_keys(text: str) -> None:
    assert quick(text) == general(text)


def test_a_key_with_a_colon_is_no_key_without() -> None:
    assert read_text(b"a:\n  b: 1\na:: 1\n") == {"a": {"b": 1}, "a:": 1}


def test_a_thousand_peers_are_read_quickly() -> None:
    """Not by the time that it takes: by the way that is taken."""
    ni = "      -     nid: 10.0.{}.{}@tcp\n            statistics:\n                  send_count: {}\n"
    text = "peer:\n" + "".join(
        f"-     primary nid: 10.0.{n >> 8}.{n & 255}@tcp\n      Multi-Rail: true\n      peer ni:\n"
        + ni.format(n >> 8, n & 255, n)
        for n in range(1000)
    )
    found = quick(text)
    assert len(found["peer"]) == 1000
    assert found["peer"][999]["peer ni"][0]["statistics"] == {"send_count": 999}


def test_aliases_are_refused() -> None:
    """A few lines of them stand for gigabytes."""
    lines = ["a0: &a0 [1, 1]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40))]
    with pytest.raises(ValueError, match="aliases"):
        read_text("\n".join(lines).encode())

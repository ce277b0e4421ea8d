"""Reading YAML: values mean what they look like, lines are known, nothing hostile gets through."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ulnet.dlc import yaml_in
from ulnet.dlc.yaml_in import MapNode, Node, ScalarNode, YamlError, read_sections


def plain(node: Node) -> Any:
    if isinstance(node, ScalarNode):
        return node.value
    if isinstance(node, MapNode):
        return {key.text: plain(value) for key, value in node.items}
    return [plain(item) for item in node.items]


def read(text: str) -> list[tuple[str, Any]]:
    return [(key.text, plain(node)) for key, node in read_sections(text)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("no", "no"),
        ("y", "y"),
        ("True", True),
        ("false", False),
        ("010", 10),
        ("0x10", 16),
        ("-1", -1),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("1.5", "1.5"),
        ("2026-11-21", "2026-11-21"),
        ("~", None),
        ("", None),
        ('"010"', "010"),
        ("'true'", "true"),
        ('! "1"', "1"),
        ("!!str 1", "1"),
        ("fd00::1@tcp", "fd00::1@tcp"),
        ("99999999999999999999", "99999999999999999999"),
    ],
)
def test_a_value_is_what_it_looks_like(text: str, value: Any) -> None:
    assert read(f"key: {text}") == [("key", value)]


def test_sections_may_repeat_and_keep_their_order() -> None:
    assert read("net: 1\npeer: 2\nnet: 3\n---\nnet: 4\n") == [("net", 1), ("peer", 2), ("net", 3), ("net", 4)]


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "---\n", "---\n...\n"])
def test_an_empty_file_has_no_sections(text: str) -> None:
    assert read(text) == []


def test_lines_are_known() -> None:
    (_, node), (key, _) = read_sections("net:\n  - a: 1\n    b: 2\nfoo: 1\n")
    assert not isinstance(node, ScalarNode) and isinstance(node.items[0], MapNode)
    assert [name.line for name, _ in node.items[0].items] == [2, 3]
    assert key.line == 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("net:\n  - a: 1\n b: [", "line 3: this is not YAML"),
        ("a: \x01", "line 1: this is not YAML: character"),
        ("a: 1\nb: \x00", "line 2: this is not YAML: character"),
        ("- a", "line 1: a file holds sections"),
        ("word", "line 1: a file holds sections"),
        ("a: &x 1\nb: *x", "line 2: aliases"),
        ("a: &x [*x]", "line 1: aliases"),
        ("a: !!python/object:os.system x", "line 1: tags such as .* are not supported"),
        ("a: !!set {b, c}", "line 1: tags such as .* are not supported"),
        ("? [a]\n: b", "line 1: a key must be a word"),
        ("a: " + "[" * 500, "nested deeper than 16 levels"),
        ("[" * 100_000, "nested deeper than 16 levels|exceeded maximum nesting depth"),  # or libyaml
        ("a: {" * 10_000, "nested deeper than 16 levels"),
        ("#" * (1 << 24) + "\n", "the file has .* split it"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(text: str, words: str) -> None:
    with pytest.raises(YamlError, match=words):
        read_sections(text)


@given(st.text(max_size=200))
def test_no_text_makes_anything_but_a_yaml_error(text: str) -> None:
    with suppress(YamlError):
        read_sections(text)


names = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(names, values, max_size=4))
def test_what_another_emitter_writes_is_read_back(value: dict[str, Any]) -> None:
    text = yaml.safe_dump(value, allow_unicode=True, sort_keys=False, default_flow_style=False)
    assert dict(read(text)) == value or "&id" in text


def test_a_file_with_too_many_values_is_refused_before_they_take_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(yaml_in, "_MOST", 100)
    text = "net:\n" + "    - net type: tcp\n" * 40
    with pytest.raises(YamlError, match=r"line [0-9]+: the file has more than 100 values"):
        read_sections(text)
    assert read_sections("net:\n    - net type: tcp\n")

"""Text for Prometheus is, byte by byte, what its library writes, also where series were kept from before."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from ulnet.observe import exposition
from ulnet.observe.exposition import Exposition

PLAIN = ""
OPEN = "application/openmetrics-text;version=1.0.0"
NEWEST = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;q=0.5"

labels = st.fixed_dictionaries({"peer": st.text(max_size=4), "nid": st.text('a"\\\n }', max_size=4)})
samples = st.lists(st.tuples(labels, st.floats()), max_size=6, unique_by=lambda one: tuple(one[0].values()))
scrapes = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(["lnet_a", "lnet_b"]), samples),
        st.sampled_from([PLAIN, OPEN, NEWEST]),
    ),
    max_size=5,
)


class Registry:
    def __init__(self, families: Iterable[Metric]) -> None:
        self.families = families

    def collect(self) -> Iterable[Metric]:
        return self.families


def family(name: str, rows: Iterable[tuple[dict[str, str], float]]) -> Metric:
    counter = name == "lnet_b"
    found = Metric(name, "what it \\ counts\nhere", "counter" if counter else "gauge")
    found.samples = [Sample(name + "_total" * counter, words, value) for words, value in rows]
    return found


@given(scrapes)
def test_each_scrape_is_as_the_library_writes_it(
    some: list[tuple[dict[str, list[tuple[dict[str, str], float]]], str]],
) -> None:
    kept = Exposition()
    for rows, accept in some:
        families = [family(name, each) for name, each in rows.items()]
        encode, kind = choose_encoder(accept)
        assert kept.text(families, accept) == (encode(Registry(families)), kind)


def test_labels_of_the_same_values_are_different_series() -> None:
    kept = Exposition()
    for name in ("net", "peer"):
        text, _ = kept.text([family("lnet_a", [({name: "x"}, 1.0)])], PLAIN)
        assert f'lnet_a{{{name}="x"}} 1.0'.encode() in text


def test_the_library_writes_new_series_alone_and_what_is_gone_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    class Counting(exposition._Once):
        def collect(self) -> Iterable[Metric]:
            found = list(super().collect())
            asked.append(sum(len(one.samples) for one in found))
            return found

    monkeypatch.setattr(exposition, "_Once", Counting)
    kept = Exposition()

    def written(count: int) -> int:
        asked.clear()
        kept.text([family("lnet_a", [({"peer": str(at)}, 1.0) for at in range(count)])], PLAIN)
        return sum(asked)

    assert [written(count) for count in (100, 100, 101, 1, 2)] == [100, 0, 1, 0, 1]


def test_a_text_is_made_once_for_each_reading_and_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before: for every request, by as many threads as there were clients."""
    made: list[object] = []
    write = Exposition._write

    def counting(self: Exposition, families: Iterable[Metric], encode: Any) -> bytes:
        made.append(families)
        return write(self, families, encode)

    monkeypatch.setattr(Exposition, "_write", counting)
    kept = Exposition()
    first, second = ([family("lnet_a", [({"x": "y"}, value)])] for value in (1.0, 2.0))
    accepted = ["", PLAIN, *(f"application/openmetrics-text; version={number}.0.0" for number in range(1, 9))]
    for families in (first, second):
        with ThreadPoolExecutor(8) as pool:
            texts = set(pool.map(lambda accept, of=families: kept.text(of, accept)[0], accepted * 4))
        assert len(texts) == 2
    assert [id(families) for families in made] == [id(first)] * 2 + [id(second)] * 2


@pytest.mark.parametrize("kind", ["text/plain", "application/openmetrics-text"])
def test_a_version_that_is_no_number_is_none(kind: str) -> None:
    """Before: an error of types, whose traceback went to the log."""
    text = Exposition().text([family("lnet_a", [({}, 1.0)])], f"{kind}; version=a")
    assert text == Exposition().text([family("lnet_a", [({}, 1.0)])], "")

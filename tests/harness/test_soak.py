"""`make soak` judges right, and a short one runs to its end."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

import soak
from soak_node import Holding, Ledger

A, B = "10.0.0.1@tcp", "10.0.0.2@tcp"
WELL = Holding(rss=30000, descriptors=10, connections=6, tasks=2, objects=10000, peers=2, trouble="")


def reckon(books: soak.Books, a: Ledger, b: Ledger, sent: int) -> str:
    return " ".join(books.reckon({A: a, B: b}, {A: {B: sent}, B: {A: 0}}))


def test_delivered_once_or_reported() -> None:
    books = soak.Books()
    assert reckon(books, Ledger(acked={B: [1, 3]}, reported={B: [2]}), Ledger(received={A: [3, 1]}), 3) == ""
    late = Ledger(received={A: [2, 4]})  # what was reported may still arrive
    assert reckon(books, Ledger(acked={B: [4]}), late, 4) == ""
    assert (books.acked, books.reported) == (3, 1)


@pytest.mark.parametrize(
    ("a", "b", "sent", "wrong"),
    [
        (Ledger(acked={B: [1]}), Ledger(received={A: [1, 1]}), 1, "delivered twice: [1"),
        (Ledger(acked={B: [1]}), Ledger(), 1, "acknowledged, never delivered: [1]"),
        (Ledger(acked={B: [1]}, reported={B: [1]}), Ledger(received={A: [1]}), 2, "ended twice"),
        (Ledger(acked={B: [1]}), Ledger(received={A: [1]}), 2, "2 messages were sent, 1 acknowledged"),
        (Ledger(), Ledger(wrong=1), 0, "1 messages had wrong bytes"),
    ],
)
def test_what_is_lost_or_twice_is_told(a: Ledger, b: Ledger, sent: int, wrong: str) -> None:
    assert wrong in reckon(soak.Books(), a, b, sent)


def test_twice_is_found_between_reckonings_too() -> None:
    books = soak.Books()
    assert not reckon(books, Ledger(acked={B: [1]}), Ledger(received={A: [1]}), 1)
    assert "delivered twice: [1]" in reckon(books, Ledger(), Ledger(received={A: [1]}), 1)


@pytest.mark.parametrize("what", ["descriptors", "tasks", "peers", "rss", "objects"])
def test_leaks_are_told(what: str) -> None:
    steady = [WELL] * 8
    assert soak.leaks(A, steady) == []
    grown = replace(WELL, **{what: getattr(WELL, what) + 9000})
    (told,) = soak.leaks(A, [*steady, *[grown] * 8])
    assert A in told
    assert soak.leaks(A, [grown, *steady]) == []  # what is given back is no leak


def test_a_short_soak(namespaces_work: None) -> None:
    told: list[str] = []
    whole = soak.Soak(7, told.append)
    try:
        assert whole.round(6.0) == []
        assert whole.faults.count.total() > 0
        assert whole.books.acked > 0 and whole.books.got > 0
        assert [one.holdings[-1].trouble for one in whole.members] == ["", "", ""]
    finally:
        for member in whole.members:
            member.end()
        whole.close()
    assert "PUTs acknowledged" in told[0]


def test_without_namespaces_it_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["soak", "--minutes", "1"])
    monkeypatch.setattr(soak, "why_no_namespaces", lambda: "network namespaces need root")
    assert soak.main() == 1
    assert "need root" in capsys.readouterr().err


def test_the_same_seed_breaks_the_same_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def story() -> list[str]:
        acts: list[str] = []

        class Stage:
            hosts = (1, 2, 3)

        faults = soak.Faults(Stage(), random.Random(5))  # type: ignore[arg-type]
        monkeypatch.setattr(
            soak.Faults, "_set", lambda self, fault, *, broken: acts.append(f"{fault} {broken}")
        )
        for now in range(40):
            faults.step(float(now))
        faults.repair_all()
        assert sum("True" in act for act in acts) == sum("False" in act for act in acts) > 10
        return acts

    assert story() == story()

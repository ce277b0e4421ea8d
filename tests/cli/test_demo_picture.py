"""The picture of a cut: it says what happened, and finds what did not."""

from __future__ import annotations

import pytest
from rich.console import Console

from ulnet.cli.demo_picture import Picture

ONE, TWO = "127.0.1.2@tcp", "127.0.2.2@tcp"
WELL, SICK = (1000, 1000, "ACTIVE"), (250, 1000, "ACTIVE")


class Story:
    """A picture, and a clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        self.picture = Picture([ONE, TWO])

    def moved(self, one: int, two: int, *, health: tuple[int, int, str] = WELL) -> None:
        self.now += 3.0
        self.picture.observe({"state": "moving", "rails": {ONE: one, TWO: two}})
        self.picture.observe({"state": "moving", "health": [WELL, health]})

    def now_is(self, what: str) -> None:
        self.picture.observe({"state": what})

    def faults(self) -> str:
        return " ".join(self.picture.faults())


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch) -> Story:
    return Story(monkeypatch)


def test_a_cut_as_it_should_be(story: Story) -> None:
    story.moved(100, 100)
    story.now_is("cut")
    story.moved(300, 100, health=SICK)
    story.now_is("repaired")
    story.moved(400, 100, health=WELL)
    story.moved(500, 200)
    assert story.faults() == ""
    console = Console(width=120)
    with console.capture() as capture:
        console.print(story.picture, story.picture.phases())
    shown = capture.get()
    assert "250" in shown  # the lowest
    assert "after the repair" in shown


def test_a_link_that_is_down_has_no_health(story: Story) -> None:
    story.now_is("cut")
    story.moved(100, 0, health=(1000, 1000, "FAILED"))
    console = Console(width=120)
    with console.capture() as capture:
        console.print(story.picture, story.picture.phases())
    assert "down" in capture.get() and "0 (link down)" in capture.get()


def test_nothing_noticed(story: Story) -> None:
    story.moved(100, 100)
    story.now_is("cut")
    story.moved(200, 200)
    story.now_is("repaired")
    story.moved(300, 300)
    assert "health did not fall" in story.faults()
    assert "100 bytes came over the rail that was cut" in story.faults()


def test_nothing_carried_on(story: Story) -> None:
    story.now_is("cut")
    story.moved(0, 0, health=SICK)
    assert "Not every other rail carried something" in story.faults()
    assert "Health did not return" in story.faults()


def test_the_repaired_rail_is_left_alone(story: Story) -> None:
    story.now_is("cut")
    story.moved(100, 0, health=SICK)
    story.now_is("repaired")
    story.moved(200, 0)
    story.moved(900, 10)
    assert "The repaired rail carried 10 of 710 bytes" in story.faults()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_column_is_cut(story: Story, width: int) -> None:
    story.now_is("cut")
    for number in range(1, 90):
        story.moved(0, number * number * 9_000_000)
    console = Console(width=width)
    with console.capture() as capture:
        console.print(story.picture, story.picture.phases())
    shown = capture.get()
    assert "…" not in shown and "MB/s" in shown and "health" in shown
    assert all(f" {rail} " in shown for rail in (ONE, TWO))
    rising = next(line for line in shown.splitlines() if TWO in line).split("│")[-2].strip()
    assert rising.endswith("█") and len(rising) >= 20  # what was last is shown


def test_a_low_screen_shows_the_rail_that_is_cut() -> None:
    rails = [f"127.0.{number}.2@tcp" for number in range(1, 17)]
    picture = Picture(rails)
    console = Console(width=80, height=24)
    with console.capture() as capture:
        console.print(picture)
    shown = capture.get().splitlines()
    assert len(shown) <= 24 and rails[-1] in shown[-2]

"""The page of `ulnet dash` in a real browser: live, on two hosts with a cut rail, by keys, with 200 nodes.

`ULNET_SCREENSHOT=docs/dash.png` has the first test write the picture of the manual.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from observe.test_dash import Page as Stream
from observe.test_dash import serve
from observe.test_top import peer, rail
from support.daemon import PATIENCE, environment
from ulnet.observe.snapshot import Snapshot
from watch import Fabric, fabric

ROOT = Path(__file__).parents[2]
COUNT = "Number(document.documentElement.dataset.frames ?? 0)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, without a screen."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("chromium is not installed (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


class Tab:
    """A page, and what it complained of and asked for."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.complaints: list[str] = []
        self.asked: set[str] = set()
        self.page: Page = context.new_page()
        self.page.set_default_timeout(PATIENCE * 1000)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._heard)
        self.page.on("request", lambda request: self.asked.add(re.sub(r"(://[^/]*).*", r"\1", request.url)))
        self.page.goto(url)

    def _heard(self, message: Any) -> None:
        if message.type == "error" and "ERR_" not in message.text:  # of a connection that is lost
            self.complaints.append(message.text)

    def wait(self, condition: str) -> None:
        """Until an expression is true. (The page's policy has no place for the library's own way.)"""
        give_up = time.monotonic() + PATIENCE
        while not self.page.evaluate(condition):
            assert time.monotonic() < give_up, (condition, self.complaints, self.page.inner_text("main"))
            time.sleep(0.05)

    def frames(self, count: int = 1) -> None:
        """Until so many more were drawn."""
        self.wait(f"{COUNT} >= {self.page.evaluate(COUNT) + count}")


Open = Callable[..., Tab]


@pytest.fixture
def open_tab(browser: Browser) -> Iterator[Open]:
    contexts = []

    def begin(url: str, **more: Any) -> Tab:
        context = browser.new_context(viewport={"width": 1400, "height": 1050}, **more)
        contexts.append(context)
        return Tab(context, url)

    yield begin
    for context in contexts:
        context.close()


@contextmanager
def dashboard(nodes: Path) -> Iterator[str]:
    """`ulnet dash` as a process; its address."""
    words = ["dash", "--nodes", str(nodes), "--listen", "127.0.0.1:0", "--every", "0.5"]
    command = [sys.executable, "-m", "ulnet", *words]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip().removeprefix("dashboard: ")
        finally:
            process.terminate()


@pytest.fixture
def two_nodes(namespaces_work: None) -> Iterator[Fabric]:
    with fabric() as found:
        yield found


def test_a_rail_is_cut_and_a_daemon_is_started_anew(two_nodes: Fabric, open_tab: Open) -> None:
    """Traffic both ways: the picture, the table, events, reasons; nothing comes from elsewhere."""
    two_nodes.begin_traffic()
    with dashboard(two_nodes.nodes) as url:
        tab = open_tab(url)
        page = tab.page
        expect(page.locator("#summary")).to_contain_text("2 nodes, 2 nets, 4 rails: all well")
        rows = "[...document.querySelectorAll('#rails tbody tr')]"
        carries = f"{rows}.filter(row => row.cells[5].textContent.endsWith('MB')).length"
        tab.wait(f"{carries} === 4")
        cut = "10.77.1.1@tcp1"
        page.get_by_role("button", name=cut, exact=True).click()
        expect(page.locator("#detail-title")).to_have_text(f"Rail {cut}")
        expect(page.locator(".stage").first).to_be_visible()
        expect(page.locator(".commands code").first).to_contain_text("lnetctl --socket")
        expect(page.locator("#detail canvas").first).to_be_visible()
        tab.frames(6)
        if "ULNET_SCREENSHOT" in os.environ:
            two_nodes.cut(1, True)
            expect(page.locator(".rail.chosen.down")).to_be_attached()
            tab.frames(8)
            page.evaluate("scrollTo(0, 0)")
            (ROOT / os.environ["ULNET_SCREENSHOT"]).write_bytes(page.screenshot())
        two_nodes.cut(1, True)
        expect(page.locator(".rail.chosen.down")).to_be_attached()
        expect(page.locator("#detail .state")).to_have_text("down")
        expect(page.locator("#summary strong")).to_contain_text("rails not well")
        expect(page.locator("#events")).to_contain_text(
            f"left: {cut}: NI status up → down (its device failed)"
        )
        expect(page.locator("#rails tr", has_text=cut).locator("td.state")).to_have_text("down")
        assert page.locator(".rail.down .cross[visibility=visible]").count() >= 1
        page.get_by_role("button", name=cut, exact=True).click()  # commands for what it is now
        expect(page.locator(".commands code").first).to_have_text("ip -s link show dev rail1")
        two_nodes.cut(1, False)
        expect(page.locator("#events")).to_contain_text(f"left: {cut}: NI status down → up")
        expect(page.locator("#events li", has_text="left: recording began")).to_have_count(1)
        two_nodes.lnetctl("left", "set", "discovery", "0")
        text = "left and right: discovery is 0 on left, 1 on right"
        expect(page.locator("#sights")).to_contain_text(text, timeout=PATIENCE * 1000)
        two_nodes.lnetctl("left", "set", "discovery", "1")
        two_nodes.daemons["right"].kill()
        expect(page.locator(".node.silent")).to_have_count(1)
        expect(page.locator("#summary")).to_contain_text("1 nodes do not answer")
        two_nodes.start("right")
        expect(page.locator(".node.silent")).to_have_count(0)
        expect(page.locator("#link")).to_have_text("live")
        assert tab.asked == {url.rstrip("/")}
        assert tab.complaints == []


class Steady:
    """A node of a fabric whose counters grow by the same each second; some rails can be taken down."""

    reach = "lnetctl"

    def __init__(self, at: int, down: set[str]) -> None:
        self.name = f"node{at}"
        self._at, self._down = at, down
        self._began = time.monotonic()

    def read(self, timeout: float) -> Snapshot:
        count = int((time.monotonic() - self._began) * 10) * (100 + self._at)
        nis = []
        for net in range(2):
            nid = f"10.{net}.{self._at >> 8}.{self._at & 255}@tcp{net or ''}"
            nis.append(rail(nid, count, status="down" if nid in self._down else "up"))
        nets = [{"net type": ni["nid"].split("@")[1], "local NI(s)": [ni]} for ni in nis]
        parts = {"net": {"net": nets}, "peer": {"peer": [peer("10.0.9.9@tcp", "10.1.9.9@tcp1")]}, "route": {}}
        return Snapshot(self.name, parts)

    def configuration(self, timeout: float) -> str:
        return ""

    def close(self) -> None:
        pass


CHANGES = """() => {
  window.changes = {picture: 0, table: 0};
  for (const [name, id] of [["picture", "picture"], ["table", "rails"]]) {
    new MutationObserver((all) => { window.changes[name] += all.length; }).observe(
      document.getElementById(id), {subtree: true, childList: true, attributes: true, characterData: true});
  }
}"""


def test_200_nodes_are_drawn_once_and_then_only_what_changes(open_tab: Open) -> None:
    """What a browser has to do for each frame is bounded: that is what keeps the page smooth."""
    down: set[str] = set()
    nodes: list[Any] = [(f"node{at}", Steady(at, down)) for at in range(200)]
    with serve(nodes, every=1.0) as port:
        tab = open_tab(f"http://127.0.0.1:{port}/")
        page = tab.page
        expect(page.locator("#summary")).to_contain_text("201 nodes, 2 nets, 402 rails: all well")
        assert page.locator(".rail").count() == 402
        assert page.locator("#rails tbody tr").count() == 100
        assert page.evaluate("document.querySelectorAll('*').length") < 6000
        tab.frames(5)
        before = page.locator("#picture svg").element_handle()
        page.evaluate(CHANGES)
        began = page.evaluate(COUNT)
        tab.frames(5)
        count = page.evaluate(COUNT) - began
        changes = page.evaluate("window.changes")
        assert changes["picture"] < 50 * count, changes  # of 402 rails and 201 nodes
        assert changes["table"] < 500 * count, changes  # two rates of 100 rows, and some that change places
        down |= {"10.1.0.7@tcp1", "10.0.0.9@tcp"}
        expect(page.locator("#summary strong")).to_have_text("2 rails not well")
        expect(page.locator(".rail.down")).to_have_count(2)
        expect(page.locator("#rails tbody tr").first.locator("td.state")).to_have_text("down")
        assert page.evaluate("(svg) => svg.isConnected", before)  # it was not built anew
        assert page.locator(".node.sick text[visibility=visible]").count() == 2
        page.fill("#filter", "node7 tcp1")
        expect(page.locator("#rails tbody tr")).to_have_count(11)
        page.fill("#filter", "")
        page.get_by_role("button", name="show all").click()
        expect(page.locator("#rails tbody tr")).to_have_count(402)
        assert tab.complaints == []


def test_by_keys_alone_and_for_screen_readers(open_tab: Open) -> None:
    down = {"10.1.0.1@tcp1"}
    nodes: list[Any] = [(f"node{at}", Steady(at, down)) for at in range(1, 4)]
    with serve(nodes) as port:
        tab = open_tab(f"http://127.0.0.1:{port}/")
        page = tab.page
        expect(page.locator(".rail")).to_have_count(8)
        assert Axe().run(page).response["violations"] == []
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the table of rails"
        for _ in range(3):
            page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "picture"
        page.keyboard.press("ArrowRight")
        expect(page.locator("#detail-title")).to_have_text("Rail 10.0.0.1@tcp")
        page.keyboard.press("ArrowRight")
        expect(page.locator("#detail-title")).to_have_text("Rail 10.1.0.1@tcp1")
        under = page.evaluate("document.getElementById('picture').getAttribute('aria-activedescendant')")
        label = page.locator(f"#{under}").get_attribute("aria-label")
        assert label is not None and label.startswith("Rail 10.1.0.1@tcp1 of node1: down, health 1000, ")
        expect(page.locator(".commands li").first).to_be_visible()
        assert Axe().run(page).response["violations"] == []
        page.keyboard.press("/")
        page.keyboard.type("node3")
        expect(page.locator("#rails tbody tr")).to_have_count(2)
        head = page.get_by_role("button", name="Bytes/s", exact=True).last
        head.press("Enter")
        expect(page.locator("th[data-key=bytes]")).to_have_attribute("aria-sort", "descending")
        expect(page.locator("#said")).to_have_text("")  # what was so from the first is in the summary
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("Space")
        expect(page.locator("#pause")).to_have_attribute("aria-pressed", "true")
        expect(page.locator("#link")).to_have_text("paused")
        down |= {"10.0.0.3@tcp"}
        with closing(Stream(port)) as stream:
            stream.until(
                lambda frame: [rail for rail in frame["nodes"][2]["rails"] if rail["state"] == "down"]
            )
        frames = page.evaluate(COUNT)
        page.keyboard.press("Space")
        tab.wait(f"{COUNT} > {frames}")
        expect(page.locator("#events")).to_contain_text("node3: 10.0.0.3@tcp: NI status up → down")
        assert page.evaluate("location.hash") == "#10.1.0.1%40tcp1"
        page.reload()  # what was chosen stays
        expect(page.locator("#detail-title")).to_have_text("Rail 10.1.0.1@tcp1")
        assert tab.complaints == []


def test_dark_light_and_on_a_small_screen(open_tab: Open) -> None:
    nodes: list[Any] = [("node1", Steady(1, set()))]
    ground = "getComputedStyle(document.body).backgroundColor"
    with serve(nodes) as port:
        dark = open_tab(f"http://127.0.0.1:{port}/", color_scheme="dark")
        dark.frames(2)
        assert dark.page.evaluate(ground) == "rgb(18, 22, 28)"
        assert Axe().run(dark.page).response["violations"] == []
        for name in ("light", "dark"):
            dark.page.click("#theme")
            expect(dark.page.locator("#theme")).to_have_text(f"Theme: {name}")
        dark.page.click("#theme")
        light = open_tab(f"http://127.0.0.1:{port}/", color_scheme="light")
        light.frames(1)
        assert light.page.evaluate(ground) == "rgb(245, 246, 248)"
        for width in (360, 768, 1400):
            light.page.set_viewport_size({"width": width, "height": 740})
            light.frames(2)
            assert light.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        assert math.isclose(light.page.evaluate("devicePixelRatio"), 1)
        assert dark.complaints == light.complaints == []


def test_the_page_goes_on_with_a_new_server(open_tab: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes: list[Any] = [("node1", Steady(1, set()))]
    with serve(nodes) as port:
        tab = open_tab(f"http://127.0.0.1:{port}/")
        tab.frames(1)
    expect(tab.page.locator("#link")).to_have_text("connection lost: trying again", timeout=PATIENCE * 1000)
    monkeypatch.setattr("observe.test_dash.free_port", lambda: port)
    with serve(nodes):
        expect(tab.page.locator("#link")).to_have_text("live", timeout=PATIENCE * 1000)
        tab.frames(2)
    assert tab.complaints == []

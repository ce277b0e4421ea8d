"""The screen of `ulnet top`: rails, peers, routes and events of a node, live, by keys alone."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static, TabbedContent, TabPane

from ulnet.observe.advice import advice
from ulnet.observe.live import Live, PeerRow, Rail
from ulnet.observe.rails import net_of
from ulnet.observe.rows import TABLES, Table, clock, sparkline
from ulnet.observe.snapshot import Snapshot
from ulnet.observe.source import Source

__all__ = ["Top"]

_COLOURS: Final = {"down": "bold red", "unwell": "yellow", "drained": "cyan"}
_LAST_READING: Final = 0.5  # seconds that the end waits for the one under way
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LEAST_PLOT, _MOST_PLOT = 8, 60  # characters


class Top(App[None]):
    """Reads the node in a thread of its own; keys are in the footer."""

    TITLE = "ulnet top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: 1; }
    #filter { height: 1; border: none; padding: 0; display: none; }
    #filter.open { display: block; }
    TabbedContent, TabPane { padding: 0; height: 1fr; }
    DataTable { height: 1fr; }
    Explanation { align: center middle; }
    Explanation VerticalScroll { width: 96%; height: 90%; border: round; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "show(0)", "Rails", show=False),
        Binding("2", "show(1)", "Peers", show=False),
        Binding("3", "show(2)", "Routes", show=False),
        Binding("4", "show(3)", "Events", show=False),
        Binding("s", "sort", "Sort"),
        Binding("r", "turn", "Reverse"),
        Binding("slash", "filter", "Filter"),
        Binding("space", "freeze", "Freeze"),
        Binding("e,enter", "explain", "Explain"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", f"end({signal.SIGINT:d})", "Quit", show=False, priority=True),
    ]

    def __init__(
        self,
        source: Source,
        explain: Callable[[str, Snapshot | None], str],
        every: float = 2.0,
        *,
        colour: bool = True,
    ) -> None:
        """`explain` tells which path a message to a NID would take, by what was shown; `every` in seconds."""
        if not colour:
            os.environ["NO_COLOR"] = "1"
        super().__init__(ansi_color=not colour)
        self._source = source
        self._explanation = explain
        self._every = every
        self._colour = colour
        self._plain = "utf" not in (sys.stdout.encoding or "").lower()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, name="reader", daemon=True)
        self.live: Live = Live(source.name)
        self.frozen: bool = False
        self._filter = ""
        self._order = [(table.sort, table.falling) for table in TABLES]
        self._heads: list[tuple[str, ...]] = [()] * len(TABLES)

    def compose(self) -> ComposeResult:
        """A line about the node, a table a tab, a line for the filter, keys."""
        yield Static("", id="head", markup=False)
        with TabbedContent(id="tabs"):
            for at, table in enumerate(TABLES):
                with TabPane(f"{at + 1} {table.name}", id=f"tab{at}"):
                    yield DataTable(id=f"table{at}", cursor_type="row", cell_padding=0)
        yield Input(placeholder="words that rows must have; Enter, or Escape for all", id="filter")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to read. A signal ends the screen as keys do, so that the terminal is as it was."""
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self.action_end, number)
        self._draw()
        self._table_of(0).focus()
        self._thread.start()

    def on_unmount(self) -> None:
        """Read no more."""
        for number in _SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)
        self._ended.set()
        self._thread.join(_LAST_READING)

    def action_end(self, number: int) -> None:
        """End with the status of a command that this signal has ended."""
        self.exit(return_code=128 + number)

    # Reading ---------------------------------------------------------------------------------------

    def _read(self) -> None:
        while not self._ended.is_set():
            began = time.monotonic()
            snapshot = self._source.read(max(self._every, 1.0))
            if self._ended.is_set():
                return
            self.call_later(self.take, snapshot, time.time())
            self._ended.wait(max(self._every - (time.monotonic() - began), 0.05))

    def take(self, snapshot: Snapshot, now: float) -> None:
        """One more reading; drawn unless the screen is frozen."""
        if not self.is_running:
            return
        self.live.take(snapshot, now)
        if not self.frozen:
            self._draw()
        else:
            self._draw_head()

    # Drawing ---------------------------------------------------------------------------------------

    @property
    def at(self) -> int:
        """Which table is shown."""
        active: str = self.screen_stack[0].query_one("#tabs", TabbedContent).active
        return int(active.removeprefix("tab") or 0)

    def _table_of(self, at: int) -> DataTable[Any]:
        return self.screen_stack[0].query_one(f"#table{at}", DataTable)

    def _draw_head(self) -> None:
        live = self.live
        if live.shown is None and not live.silent:
            text = f"{live.name}: asking"
        elif live.silent:
            why = live.missing.get("net", "")
            since = f"; shown: {clock(live.shown_at)}" if live.shown_at else ""
            text = f"{live.name} DOES NOT ANSWER: {why}{since}"
        else:
            bad = sum(rail.state != "up" for rail in live.rails.values())
            rails = f"{len(live.rails)} rails{f', {bad} NOT WELL' if bad else ''}"
            others = f"{len(live.peers)} peers, {len(live.routes)} routes"
            text = f"{live.name}  {clock(live.shown_at)}  {rails}, {others}"
        marks = ("[FROZEN] " if self.frozen else "") + (f"[filter: {self._filter}] " if self._filter else "")
        self.screen_stack[0].query_one("#head", Static).update(marks + text)

    def _draw(self) -> None:
        self._draw_head()
        at = self.at
        table, widget = TABLES[at], self._table_of(at)
        sort, falling = self._order[at]
        plot = self._plot_width(table)
        mark = "*" if self._plain else "▾" if falling else "▴"
        heads = [
            column.fit(column.head) + (mark if n == sort else " ") for n, column in enumerate(table.columns)
        ]
        shape = (*heads, str(plot))
        rows = table.chosen(self.live, self._filter, sort, falling)
        keys = [table.key(row) for row in rows]
        under = self._key_under_cursor(widget)
        if self._heads[at] != shape:
            widget.clear(columns=True)
            for head in heads:
                widget.add_column(Text(head), width=len(head))
            if plot:
                widget.add_column(Text("RATE"), width=plot)
            self._heads[at] = shape
        top = widget.scroll_y
        widget.clear()
        for key, row in zip(keys, rows, strict=True):
            widget.add_row(*self._cells(table, row, plot), key=key)
        if under in keys:
            widget.move_cursor(row=keys.index(under), animate=False, scroll=False)
        widget.scroll_to(y=top, animate=False)

    def _plot_width(self, table: Table) -> int:
        if table.plot is None:
            return 0
        left = self.size.width - sum(column.width + 1 for column in table.columns) - 2
        return max(_LEAST_PLOT, min(left, _MOST_PLOT))

    def _cells(self, table: Table, row: Any, plot: int) -> list[Text]:
        style = _COLOURS.get(getattr(row, "state", ""), "") if self._colour else ""
        cells = []
        for column in table.columns:
            cells.append(Text(f"{column.fit(column.text(row))} ", style))
        if plot and table.plot is not None:
            cells.append(Text(sparkline(table.plot(row), plot, self._plain), style))
        return cells

    @staticmethod
    def _key_under_cursor(widget: DataTable[Any]) -> str | None:
        if not widget.row_count:
            return None
        return widget.coordinate_to_cell_key(widget.cursor_coordinate).row_key.value

    # Keys ------------------------------------------------------------------------------------------

    def action_show(self, at: int) -> None:
        """Another table."""
        self.screen_stack[0].query_one("#tabs", TabbedContent).active = f"tab{at}"

    def on_tabbed_content_tab_activated(self) -> None:
        """Its rows may be old."""
        self._draw()
        self._table_of(self.at).focus()

    def on_resize(self) -> None:
        """Sparklines take what is left."""
        self._draw()

    def action_sort(self) -> None:
        """By the next column."""
        sort, falling = self._order[self.at]
        self._order[self.at] = ((sort + 1) % len(TABLES[self.at].columns), falling)
        self._draw()

    def action_turn(self) -> None:
        """The other way round."""
        sort, falling = self._order[self.at]
        self._order[self.at] = (sort, not falling)
        self._draw()

    def action_freeze(self) -> None:
        """Draw nothing new until it is pressed again; reading goes on."""
        self.frozen = not self.frozen
        self._draw_head() if self.frozen else self._draw()

    def action_filter(self) -> None:
        """Type words."""
        line = self.screen_stack[0].query_one("#filter", Input)
        line.add_class("open")
        line.value = self._filter
        line.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Filter by these words."""
        self._set_filter(event.value)

    def key_escape(self) -> None:
        """No filter."""
        self._set_filter("")

    def _set_filter(self, words: str) -> None:
        self._filter = words.strip()
        self.screen_stack[0].query_one("#filter", Input).remove_class("open")
        self._table_of(self.at).focus()
        self._draw()

    def on_data_table_row_selected(self) -> None:
        """Enter on a row."""
        self.action_explain()

    def action_explain(self) -> None:
        """Why messages of this row go where they go, and what to try."""
        key = self._key_under_cursor(self._table_of(self.at))
        if key is None:
            return
        rail = self.live.rails.get(key) if self.at == 0 else None
        peer = self.live.peers.get(key) if self.at == 1 else self._busiest(rail) if rail else None
        if rail is None and peer is None:
            return
        page = Explanation(f"{rail.nid if rail else peer.nid if peer else ''}")
        self.push_screen(page)
        work = threading.Thread(target=self._explain, args=(page, rail, peer), daemon=True)
        work.start()

    def _busiest(self, rail: Rail) -> PeerRow | None:
        peers = self.live.peers.values()
        near = [peer for peer in peers if any(net_of(nid) == rail.net for nid in peer.nids)]
        return max(near, key=lambda peer: peer.rates.messages, default=None)

    def _explain(self, page: Explanation, rail: Rail | None, peer: PeerRow | None) -> None:
        lines = []
        if rail is not None:
            why = f": {rail.why}" if rail.why else ""
            why += f", since {clock(rail.since)}" if rail.since is not None else ""
            lines.append(f"{rail.nid} ({rail.interface or 'no interface'}) is {rail.state}{why}")
            lines.append(f"{rail.failed} messages failed, {rail.resent} were sent again")
        if peer is not None:
            lines += [
                "",
                f"What a message to {peer.nid} would take now:",
                "",
                self._explanation(peer.nid, self.live.shown),
            ]
        if rail is not None:
            nids = [nid for nid in (peer.nids if peer else ()) if net_of(nid) == rail.net]
            lines += ["", "Commands to try:"]
            for command in advice(rail, nids, self._source.reach):
                lines += [f"  {command.line}", f"      {command.why}"]
        self.call_later(page.show, "\n".join(lines))


class Explanation(ModalScreen[None]):
    """A page of text over the tables; Escape closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,e,enter", "close", "Close")]

    def __init__(self, of: str) -> None:
        super().__init__()
        self.of = of
        self.text: str = ""

    def compose(self) -> ComposeResult:
        """The text, scrolled by arrow keys."""
        with VerticalScroll():
            yield Static(f"{self.of}: asking the node …", id="page", markup=False)
        yield Footer(show_command_palette=False)

    def show(self, text: str) -> None:
        """What was found."""
        self.text = text
        self.query_one("#page", Static).update(text)

    def action_close(self) -> None:
        """Back to the tables."""
        self.dismiss()

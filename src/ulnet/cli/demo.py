"""`ulnet demo`: two nodes with several rails each move a file in this machine; then a rail is cut."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from rich.live import Live
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column, Table
from rich.text import Text

from ulnet.cli.demo_bond import bond_act, digests_of, judge, want_room
from ulnet.cli.demo_picture import Picture
from ulnet.cli.output import of_output
from ulnet.cli.parsers import command_parser
from ulnet.cli.screens import Screen
from ulnet.demo.network import DemoError, DemoNetwork, Loopback, namespaces
from ulnet.demo.runner import Result, move
from ulnet.demo.signals import ended_by_signals
from ulnet.demo.transfer import PACED_PIECES, SMALLEST_CHUNK
from ulnet.demo.worker import HEALTH_STEP

__all__ = ["main"]

_EXAMPLES = """\
example:
  ulnet demo
  ulnet demo --size 256M --rails 4
  ulnet demo --file /var/log/syslog --no-cut
  ulnet demo --net
  ulnet demo --bond

First act: 1 MiB PUTs go over all rails at once, straight from the source file into the destination file.
Second act: the same again, slowed down to some 16 s; meanwhile the last rail is cut, and repaired. Each node
is a process of its own, with a loopback address a rail, or with --net in a network namespace with a link a
rail.

Exit status: 0 only if every byte arrived both times, every rail carried a fair share, the traffic left the
rail that was cut, and came back; 1 if not, or where the demo cannot run; 2 for words that it does not know.
A terminal that is closed (SIGHUP) ends it with 129, Ctrl-C with 130, and SIGTERM with 143: by then its nodes
have ended, and what it made is removed.
"""

_GENERATE_BLOCK = 16 << 20
_SECOND_ACT = 16.0  # seconds
_WIDE = 80  # columns, from which on a bar tells both ends of its rail
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet demo --help`."""
    options = _parser().parse_args(argv)
    with ended_by_signals():
        return _perform(options)


def _perform(options: argparse.Namespace) -> int:
    console = Screen()
    stage_at = namespaces(options.rails) if options.net else nullcontext()
    try:
        with _workplace(options, console) as (source, target), stage_at as net:
            network = net or Loopback(options.rails)
            if options.bond:
                return bond_act(console, source, target, network)
            status = _report(console, _run(console, source, target, network), options)
            if options.cut and not status:
                status = _second_act(console, source, target, network)
            return status
    except (DemoError, OSError) as error:
        if isinstance(error, OSError) and of_output(error):
            raise
        print(f"ulnet demo: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "ulnet demo",
        "Move a file between two LNet nodes over several rails, compare it, and cut a rail.",
        _EXAMPLES,
    )
    parser.add_argument("--file", type=Path, metavar="PATH", help="the file to move (default: a random one)")
    parser.add_argument("--size", type=_size, default=1 << 30, metavar="N[K|M|G]", help="its size (1G)")
    parser.add_argument(
        "--rails", type=_rails, default=2, metavar="N", help="rails of each node, 1 to 16 (2)"
    )
    parser.add_argument(
        "--net", action="store_true", help="in network namespaces, where a link really goes down (needs root)"
    )
    parser.add_argument(
        "--bond",
        action="store_true",
        help="between bonding NIs in standby mode: the default slave fails, and comes back",
    )
    parser.add_argument(
        "--statistics", action="store_true", help="print the statistics of all NIs too (lnetctl net show -v)"
    )
    parser.add_argument("--no-cut", dest="cut", action="store_false", help="the first act alone")
    return parser


def _size(text: str) -> int:
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].isalpha() else (text, "")
    if unit not in _UNITS or not number.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no size: write a number with K, M or G, such as 256M")
    return int(number) * _UNITS[unit]


def _rails(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 16:
        raise argparse.ArgumentTypeError(f"{text!r}: give 1 to 16 rails")
    return int(text)


@contextmanager
def _workplace(options: argparse.Namespace, console: Screen) -> Iterator[tuple[Path, Path]]:
    """The source file and where its copy goes; what the demo made is removed afterwards."""
    if options.file is not None and not options.file.is_file():
        raise DemoError(f"{options.file} is not a file: name an existing one, or leave --file out")
    size = options.size if options.file is None else options.file.stat().st_size
    if options.bond:
        want_room(options.rails, size)
    with tempfile.TemporaryDirectory(prefix="ulnet-demo-") as folder:
        needed = size * (2 if options.file is None else 1)
        free = shutil.disk_usage(folder).free
        if free < needed:
            raise DemoError(
                f"{tempfile.gettempdir()} has {free >> 20} MiB free and the demo needs {needed >> 20}: "
                "set TMPDIR to a larger place, or choose a smaller --size"
            )
        source = options.file
        if source is None:
            source = Path(folder) / "source"
            console.print(f"Writing a random file of {size / (1 << 20):,.0f} MiB to {folder} ...")
            _generate(source, size)
        yield source, Path(folder) / "copy"


def _generate(path: Path, size: int) -> None:
    try:
        with open(path, "wb") as file:
            for start in range(0, size, _GENERATE_BLOCK):
                file.write(os.urandom(min(_GENERATE_BLOCK, size - start)))
    except OSError as error:
        way_out = "set TMPDIR to another place, or choose a smaller --size"
        raise DemoError(f"{path} cannot be written: {error.strerror}: {way_out}") from None


def _run(console: Screen, source: Path, target: Path, network: DemoNetwork) -> Result:
    size, rails = source.stat().st_size, len(network.senders)
    console.print(f"[bold]{source.name}[/], {size / (1 << 20):,.0f} MiB, over {rails} rails:")
    progress = Progress(
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(),  # the one that is narrower where there is little room
        DownloadColumn(binary_units=True, table_column=Column(no_wrap=True)),
        _Rate(table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        console=console,
    )
    names = {
        there: f"{here} {console.arrow} {there}" if console.width >= _WIDE else f"{console.arrow} {there}"
        for here, there in zip(network.senders, network.receivers, strict=True)
    }
    bars: dict[str, TaskID] = {
        there: progress.add_task(name, total=size / rails) for there, name in names.items()
    }
    whole = progress.add_task("[bold]file", total=size)

    def show(told: dict[str, Any]) -> None:
        for nid, count in told.get("rails", {}).items():
            progress.update(bars[nid], completed=count, total=max(count, size / rails))
        if "received" in told:
            progress.update(whole, completed=told["received"])
        if "line" in told:
            _log(console, told)

    with progress:
        result = asyncio.run(move(source, size, target, network, show))
        seconds = max(result.seconds, 1e-9)
        for nid, count in result.rails.items():
            progress.update(bars[nid], completed=count, total=count, rate=count / seconds)
        progress.update(whole, completed=size, rate=size / seconds)
    return result


class _Rate(ProgressColumn):
    """How fast it goes, and in the end how fast it went."""

    def render(self, task: Task) -> Text:
        """In MB/s."""
        rate = task.fields.get("rate") or task.speed
        return Text("" if rate is None else f"{rate / 1e6:,.0f} MB/s", style="progress.data.speed")


def _log(console: Screen, told: dict[str, Any]) -> None:
    console.print(f"{told['node']}: {told['line']}", style="dim", markup=False, highlight=False)


def _second_act(console: Screen, source: Path, target: Path, network: DemoNetwork) -> int:
    """Move the same file again, and cut a rail meanwhile."""
    rails, size = len(network.senders), source.stat().st_size
    if rails < 2 or size < PACED_PIECES * SMALLEST_CHUNK:
        why = "there is one rail only" if rails < 2 else "so small a file would be through before that"
        console.print(f"No rail is cut: {why}.")
        return 0
    console.print(
        f"\n[bold]Once more, and the last rail is cut meanwhile.[/] Slowed down to "
        f"{size / _SECOND_ACT / 1e6:,.0f} MB/s, for eyes to follow; health_sensitivity {HEALTH_STEP}, "
        "max_recovery_ping_interval 1, so that recovery takes seconds.\n"
        f"Cut by: {network.how}.\n"
        "Lines that begin with a node are its log: it finds that messages fail, and sends them again.",
        highlight=False,
    )
    picture = Picture(network.receivers)

    def show(told: dict[str, Any]) -> None:
        picture.observe(told)
        if "line" in told:
            _log(console, told)
        elif told["state"] in ("cut", "repaired"):
            console.print(f"[bold]{picture.seconds:.1f} s: {network.receivers[-1]} {told['state']}[/]")

    with Live(picture, console=console, refresh_per_second=8):
        result = asyncio.run(move(source, size, target, network, show, seconds=_SECOND_ACT))
    console.print()
    console.print(picture.phases())
    seen = ", ".join(f"resent by the {node}: {count}" for node, count in result.resends.items())
    praise = "A rail was cut: every byte arrived all the same, and the rail is back."
    return judge(console, result, seen, picture.faults(), praise)


def _report(console: Screen, result: Result, options: argparse.Namespace) -> int:
    for node, statistics in result.statistics.items() if options.statistics else ():
        console.print(f"\n[bold]NI statistics of the {node}[/] (lnetctl net show -v)")
        console.print(statistics, markup=False, highlight=False, soft_wrap=True)
    rails = options.rails
    console.print(_table(result))
    console.print(digests_of(result), soft_wrap=True)
    if not result.intact:
        console.print("[bold red]The copy differs from the source.[/]")
        return 1
    if not result.judgeable(rails):
        console.print("[bold green]Every byte arrived[/]; so small a file cannot show a fair share.")
        return 0
    if not result.fair(rails):
        console.print("[bold red]Every byte arrived, but not every rail carried a fair share.[/]")
        return 1
    console.print("[bold green]Every byte arrived, and every rail carried its share.[/]")
    return 0


def _table(result: Result) -> Table:
    seconds = max(result.seconds, 1e-9)
    table = Table(title=f"{result.size / seconds / 1e6:,.0f} MB/s in {result.seconds:.2f} s")
    for heading in ("rail to", "MiB", "share", "MB/s"):
        table.add_column(heading, justify="left" if heading == "rail to" else "right")
    for nid, count in result.rails.items():
        share = count / result.size if result.size else 0
        table.add_row(nid, f"{count / (1 << 20):,.0f}", f"{share:.1%}", f"{count / seconds / 1e6:,.0f}")
    return table

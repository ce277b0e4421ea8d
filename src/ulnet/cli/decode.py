"""`ulnet decode FILE`: a packet capture as readable LNet conversation."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from typing import BinaryIO

from ulnet.capture import LNET_PORT, CaptureError, Decoder, Event
from ulnet.cli.parsers import command_parser

__all__ = ["main"]

_EXAMPLE = """\
example:
  tcpdump -i eth0 -w lnet.pcap 'port 988'
  ulnet decode lnet.pcap
  tcpdump -i eth0 -U -w - 'port 988' | ulnet decode -
"""


def main(argv: list[str]) -> int:
    """Print the LNet conversation of a capture; 1 if the file cannot be read to its end."""
    options = _parser().parse_args(argv)
    decoder = Decoder(options.port or (LNET_PORT,))
    try:
        if options.file == "-":
            shown = _print_all(decoder, sys.stdin.buffer, options.json)
        else:
            with _opened(options.file) as file:
                shown = _print_all(decoder, file, options.json)
    except CaptureError as error:
        return _fail(f"{options.file}: {error}")
    if not shown:
        ports = ", ".join(map(str, options.port or (LNET_PORT,)))
        _note(
            f"{options.file}: no LNet in {decoder.packets} packets; name other ports than {ports} "
            "with --port if LNet uses them"
        )
    elif decoder.cut_packets:
        _note(
            f"{options.file}: {decoder.cut_packets} of {decoder.packets} packets were captured only in part; "
            "capture with tcpdump -s 0 to follow every message"
        )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "ulnet decode",
        "Print a packet capture (pcap, pcapng) as LNet conversation, one line an event.",
        _EXAMPLE,
    )
    parser.add_argument("file", metavar="FILE", help="the capture; - reads standard input")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument(
        "--port",
        type=int,
        action="append",
        metavar="N",
        help=f"a TCP port that LNet listens on, may be repeated (default {LNET_PORT})",
    )
    return parser


def _opened(name: str) -> BinaryIO:
    """Raises CaptureError."""
    try:
        return open(name, "rb")
    except OSError as error:
        raise CaptureError(error.strerror or os.strerror(error.errno or 0)) from None


def _events(decoder: Decoder, file: BinaryIO) -> Iterator[Event]:
    """What the file holds; what cannot be written is another matter than what cannot be read."""
    try:
        yield from decoder.events(file)
    except OSError as error:
        raise CaptureError(f"it cannot be read: {error.strerror}") from None


def _print_all(decoder: Decoder, file: BinaryIO, as_json: bool) -> int:
    out = sys.stdout
    line = _JsonLine(decoder) if as_json else _TextLine(decoder)
    shown = 0
    for event in _events(decoder, file):
        out.write(line.of(event) + "\n")
        shown += 1
        if file is sys.stdin.buffer:
            out.flush()
    out.flush()
    return shown


class _TextLine:
    """Columns: seconds since the first packet, from, to, what. Address columns only ever widen."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._width = 0

    def of(self, event: Event) -> str:
        """The event's line."""
        src, dst = str(event.src), str(event.dst)
        self._width = max(self._width, len(src), len(dst))
        seconds = (event.time_ns - self._decoder.start_ns) / 1e9
        return f"{seconds:11.6f}  {src:>{self._width}} → {dst:<{self._width}}  {event.saying.text}"


class _JsonLine:
    """One JSON object, with the text for people in it."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def of(self, event: Event) -> str:
        """The event's line."""
        return json.dumps(
            {
                "time": round((event.time_ns - self._decoder.start_ns) / 1e9, 9),
                "src": str(event.src),
                "dst": str(event.dst),
                "event": event.saying.kind,
                **event.saying.facts,
                "text": event.saying.text,
            },
            ensure_ascii=not (sys.stdout.encoding or "").lower().startswith("utf"),
        )


def _note(text: str) -> None:
    sys.stdout.flush()
    print(f"ulnet decode: {text}", file=sys.stderr)


def _fail(text: str) -> int:
    _note(text)
    return 1

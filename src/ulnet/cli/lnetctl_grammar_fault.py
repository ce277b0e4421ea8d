"""The words of `fault`, and those of `lctl` before them, as tables (spec net-fault.md §1)."""

from __future__ import annotations

from ulnet.cli.lnetctl_words import Command, Option

__all__ = ["FAULTS", "LCTL_FAULTS"]

_FROM = Option("source", "messages from this NID; * is any, *@tcp all of a net", "NID", "s")
_TO = Option("dest", "messages to this NID; * is any, *@tcp all of a net", "NID", "d")
_LOCAL = Option("local_nid", "messages that arrive on this local NID", "NID", "o")
_RATE = Option("rate", "strike one message of so many", "N", "r", "number")
_INTERVAL = "strike one message in so many seconds, in place of --rate"
_PORTAL = Option("portal", "PUTs and GETs on this portal, 0 to 63; may be repeated", "N", "p", "list")
_MESSAGE = Option("message", "only PUTs, ACKs, GETs or REPLYs; may be repeated", "TYPE", "m", "list")

_ADD = {
    "drop": (
        _FROM,
        _TO,
        _LOCAL,
        _RATE,
        Option("interval", _INTERVAL, "S", "i", "number"),
        Option("random", "with --interval: toss a coin for each message", short="n"),
        _PORTAL,
        _MESSAGE,
        Option(
            "health_error",
            "fail them when they are sent, as local_timeout, remote_dropped, network_timeout, ... or random; "
            "may be repeated",
            "E",
            "e",
            "list",
        ),
        Option("drop_all", "strike all that match", short="x"),
    ),
    "delay": (
        _FROM,
        _TO,
        _LOCAL,
        _RATE,
        Option("interval", _INTERVAL, "S", kind="number"),
        Option("latency", "for how many seconds", "S", "l", "seconds"),
        _PORTAL,
        _MESSAGE,
    ),
}
_EXAMPLE = {
    "drop": "-s '*@tcp' -d 10.0.0.2@tcp --rate 10 --health_error local_timeout",
    "delay": "-s '*' -d '*@tcp' --rate 1 --latency 2",
}
_DEL = (Option("all", "all of them", short="a"), _FROM, _TO)


def _commands(before: tuple[str, ...], kind: str, action: str) -> tuple[Command, ...]:
    """add, del, reset and show of one kind of rule; `action` begins the names of what runs them."""
    written = " ".join(before)

    def command(word: str, summary: str, options: tuple[Option, ...], example: str) -> Command:
        examples = (f"lnetctl {written} {word} {example}".rstrip(),)
        return Command(
            *((*before, word), summary, options),
            examples=examples,
            action=f"{action}_{kind}_{word}",
            request=f"Fault{word.capitalize()}",
        )

    return (
        command("add", f"add a rule that {kind}s messages", _ADD[kind], _EXAMPLE[kind]),
        command("del", f"delete {kind} rules: those with this source and destination, or all", _DEL, "--all"),
        command("reset", f"zero the counters of all {kind} rules", (), ""),
        command("show", f"show {kind} rules, the newest first, and their counters", (), ""),
    )


FAULTS = (*_commands(("fault", "drop"), "drop", "fault"), *_commands(("fault", "delay"), "delay", "fault"))


def _lctl(kind: str) -> tuple[Command, ...]:
    """`net_drop add` and `net_drop_add`; what `show` is now was `list`, which is understood everywhere."""
    show = next(command for command in FAULTS if command.words == ("fault", kind, "show"))
    found = [show._replace(words=("fault", kind, "list"))]
    for command in _commands((f"net_{kind}",), kind, "lctl"):
        word = "list" if command.words[-1] == "show" else command.words[-1]
        found.append(command._replace(words=(f"net_{kind}", word)))
        found.append(command._replace(words=(f"net_{kind}_{word}",)))
    return tuple(found)


LCTL_FAULTS = (*_lctl("drop"), *_lctl("delay"))  # understood, and not shown in help

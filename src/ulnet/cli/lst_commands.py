"""The commands of lst, the console of LNet selftest, with the words and the output of the kernel's tool."""

from __future__ import annotations

import argparse
import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import msgspec

from ulnet import __version__
from ulnet.cli.console_socket import console_socket
from ulnet.cli.lst_text import Picked, batch_lines, error_lines, rates, table
from ulnet.cli.lst_words import COMMANDS, BadWords, parse, read_brw
from ulnet.dlc import documents_selftest as told
from ulnet.dlc import model_selftest as model
from ulnet.dlc.client import Client
from ulnet.dlc.errors import DlcError
from ulnet.dlc.paths import default_socket
from ulnet.dlc.protocol import document_of

__all__ = ["EXAMPLE", "run"]

D = TypeVar("D", bound=msgspec.Struct)
_DEADLINE: Final = 120.0  # seconds, beside what the nodes may take
_START: Final = 60.0
_STATES: Final = ("active", "busy", "down", "unknown")
EXAMPLE: Final = (
    "export LST_SESSION=$$",
    "lst new_session rw",
    "lst add_group clients 10.0.0.[1-2]@tcp",
    "lst add_group servers 10.0.0.[3-4]@tcp",
    "lst add_batch b",
    "lst add_test --batch b --concurrency 8 --from clients --to servers brw write size=1M check=simple",
    "lst run b",
    "lst stat --count 3 clients servers",
    "lst stop b",
    "lst end_session",
)
_HELP: Final = """\
usage: lst [--socket PATH] COMMAND [WORDS...]
       lst --help | --version

The console of LNet selftest. Commands:

{commands}

`lst COMMAND --help` tells more. LST_SESSION holds the key of the session, a number of your choice, and
LST_FEATURES may hold its features (1). lnetd keeps the session; where none answers, `lst new_session` starts
a node that keeps it until it ends. ULNET_SOCKET names another lnetd by its control socket. --socket does
that, too, and then no other node is asked or started. Example:

{example}
"""


def run(words: list[str]) -> int:
    """The exit status of one command."""
    if words[:1] == ["--complete"]:
        from ulnet.cli.complete import lst_words

        print(*(f"{word}\n" for word in lst_words(words[1:])), sep="", end="")
        return 0
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help(), end="", file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    if words[0] in ("-V", "--version"):
        print(f"lst {__version__} (ulnet)")
        return 0
    try:
        path, words = _named(words)
        options = parse(words)
        console = _Console(_key(), path)
        with console:
            return _DO[options.command](console, options)
    except BadWords as bad:
        print(bad.usage, end="", file=sys.stderr)
        print(bad, file=sys.stderr)
        return 2
    except DlcError as refused:
        print(f"lst: {refused.descr}", file=sys.stderr)
        return 1


def _named(words: list[str]) -> tuple[str | None, list[str]]:
    """The control socket that is asked alone, if one is named, and the other words."""
    option, is_joined, path = words[0].partition("=")
    if option != "--socket":
        return None, words
    rest = words[1:]
    if not is_joined:
        path, *rest = rest or [""]
    if not path or not rest:
        raise BadWords("lst: --socket takes a path, and a command follows: lst --socket PATH show_session")
    return path, rest


def _help() -> str:
    commands = "\n".join(f"  {name:<14}{text}" for name, (text, _) in COMMANDS.items())
    return _HELP.format(commands=commands, example="\n".join(f"  {line}" for line in EXAMPLE))


def _key() -> int:
    text = os.environ.get("LST_SESSION", "")
    try:
        key = int(text, 0)
    except ValueError:
        key = -1
    if not 0 <= key < 1 << 63:
        raise BadWords("lst: LST_SESSION is no number: choose one, for example `export LST_SESSION=$$`")
    return key


def _features() -> int:
    text = os.environ.get("LST_FEATURES", "1")
    try:
        features = int(text, 0)
    except ValueError:
        features = -1
    if not 0 <= features <= 0xFFFFFFFF:
        raise BadWords(f"lst: LST_FEATURES={text} is no number: 1 is all that is known, 0 is none")
    return features


# Who keeps the session ---------------------------------------------------------------------------------


class _Console:
    """The node that keeps the session: that of an earlier `lst`, else lnetd; or the one at `path` alone."""

    def __init__(self, key: int, path: str | None) -> None:
        self._key = key
        self._is_named = path is not None
        self._client = Client(path or console_socket())

    def __enter__(self) -> _Console:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._client.close()

    def tell(self, command: model.Command, patience: float = 0.0) -> msgspec.Raw:
        """What is answered to a command. Raises DlcError."""
        request = model.Lst(self._key, command)
        try:
            reply = self._client.request(request, _DEADLINE + patience)
        except DlcError as failed:
            if self._is_named or failed.errno != errno.ECONNREFUSED or self._client.path == default_socket():
                raise
            self._client = Client(default_socket())
            reply = self._client.request(request, _DEADLINE + patience)
        if reply.errors:
            item = reply.errors[0]
            raise DlcError(item.errno, item.descr, verb=item.verb, entity=item.entity)
        return reply.result

    def ask(self, command: model.Command, document: type[D], patience: float = 0.0) -> D:
        """The same as a document. Raises DlcError."""
        return cast(D, document_of(self.tell(command, patience), document))

    def begin(self, command: model.SessionNew, options: argparse.Namespace) -> told.SessionView:
        """Begin a session; where nobody is there to keep it, by a node of its own."""
        try:
            return self.ask(command, told.SessionDocument).session
        except DlcError as failed:
            if self._is_named or failed.errno != errno.ECONNREFUSED:
                raise
        _start_node(options)
        started = f"no lnetd answers on {default_socket()}: a node was started that keeps this session"
        print(f"lst: note: {started}", file=sys.stderr)
        self._client = Client(console_socket())
        return self.ask(command, told.SessionDocument).session


def _start_node(options: argparse.Namespace) -> None:
    """A node that keeps one session, in the background."""
    words = [
        sys.executable,
        "-m",
        "ulnet.cli.selftest",
        "serve",
        "--one-session",
        "--socket",
        console_socket(),
    ]
    words += ["--port", str(options.port)]
    if options.networks:
        words += ["--networks", options.networks]
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd="/",
    )
    assert process.stdout is not None and process.stderr is not None
    first = process.stdout.readline()
    if first.strip() != "ready":
        process.wait(_START)
        why = process.stderr.read().strip() or "its node did not start"
        raise DlcError(errno.EIO, why, verb="lst", entity="selftest")
    process.stdout.close()
    process.stderr.close()
    process.returncode = 0  # it lives on, and is nobody's child to wait for


# Commands ----------------------------------------------------------------------------------------------


def _new_session(console: _Console, options: argparse.Namespace) -> int:
    command = model.SessionNew(options.name, options.timeout, options.force, _features())
    session = console.begin(command, options)
    force = "Yes" if options.force else "No"
    print(f"SESSION: {session.name} FEATURES: {session.features} TIMEOUT: {session.timeout} FORCE: {force}")
    return 0


def _end_session(console: _Console, options: argparse.Namespace) -> int:
    console.tell(model.SessionEnd())
    return 0


def _show_session(console: _Console, options: argparse.Namespace) -> int:
    session = console.ask(model.SessionShow(), told.SessionDocument).session
    print(
        f"{session.name} ID: {session.id}, KEY: {session.key} FEATURES: {session.features} "
        f"NODES: {session.nodes}"
    )
    return 0


def _ping(console: _Console, options: argparse.Namespace) -> int:
    if not (options.group or options.batch or options.nodes or options.session):
        raise BadWords("lst ping: tell whom with --group, --batch, --nodes or --session")
    ids = [options.nodes] if options.nodes else []
    command = model.NodesPing(options.group, options.batch, options.server, ids, options.timeout)
    nodes = console.ask(command, told.PingedDocument, options.timeout * 16).nodes
    for node in nodes:
        session = f"{node.session} id: {node.owner}" if node.owner else "<NULL> id: LNET_NID_ANY"
        print(f"12345-{node.id}: {node.state.capitalize()} [session: {session}]{_why(node.error)}")
    return 0 if all(node.state == "active" for node in nodes) else 1


def _why(error: str) -> str:
    return f" ({error})" if error else ""


def _add_group(console: _Console, options: argparse.Namespace) -> int:
    command = model.GroupAdd(options.name, options.ids)
    group = console.ask(command, told.GroupDocument, command.timeout * 16).groups[0]
    bad = [node for node in group.nodes if node.state != "active"]
    for node in bad:
        print(f"12345-{node.id} is {node.state}: {node.error}", file=sys.stderr)
    if len(bad) < len(group.nodes):
        added = options.ids if not bad else [node.id for node in group.nodes if node.state == "active"]
        print(f"{' '.join(added)} are added to session")
    return 1 if bad else 0


def _del_group(console: _Console, options: argparse.Namespace) -> int:
    console.tell(model.GroupDel(options.name))
    print("Group is deleted")
    return 0


def _update_group(console: _Console, options: argparse.Namespace) -> int:
    states = [word.strip() for word in options.clean.split(",")] if options.clean else []
    if any(state not in (*_STATES, "invalid") for state in states):
        raise BadWords(f"lst update_group: --clean {options.clean}: states are {', '.join(_STATES)}")
    if "invalid" in states:
        states = ["busy", "down", "unknown"]
    remove = [options.remove] if options.remove else []
    command = model.GroupUpdate(options.name, states, remove, options.refresh)
    group = console.ask(command, told.GroupDocument, command.timeout * 16).groups[0]
    print("Group is updated")
    return 0 if all(node.state == "active" for node in group.nodes) or not options.refresh else 1


def _list_group(console: _Console, options: argparse.Namespace) -> int:
    groups = console.ask(model.GroupList(options.names), told.GroupDocument).groups
    if not options.names:
        for number, group in enumerate(groups, start=1):
            print(f"{number}) {group.name}")
        print(f"Total {len(groups)} groups")
        return 0
    wanted = [state for state in _STATES if getattr(options, state) or options.all]
    for line in table([(group.name, group.nodes) for group in groups]):
        print(line)
    for group in groups:
        for node in group.nodes:
            if node.state in wanted:
                print(f"\t12345-{node.id}: {node.state.capitalize()}{_why(node.error)}")
    return 0


def _stat(console: _Console, options: argparse.Namespace) -> int:
    pieces = tuple(piece for piece in ("Avg", "Min", "Max") if getattr(options, piece.lower()))
    picked = Picked(
        rpc=options.rpc,
        rate=options.rate or not options.bw,
        bandwidth=options.bw or not options.rate,
        read=options.read or not options.write,
        write=options.write or not options.read,
        pieces=pieces or ("Avg", "Min", "Max"),
        mbs=options.mbs,
    )
    command = model.Counters(options.of, options.timeout)
    before = _counters(console, command)
    shown = 0
    while not options.count or shown < options.count:
        time.sleep(options.delay)
        now = _counters(console, command)
        for old, new in zip(before, now, strict=True):
            for line in rates(old, new, picked):
                print(line)
        sys.stdout.flush()
        before = now
        shown += 1
    return 0


def _counters(console: _Console, command: model.Counters) -> list[told.CountersView]:
    views = console.ask(command, told.CountersDocument, command.timeout * 16).of
    for node in dict.fromkeys((node.id, node.error) for view in views for node in view.nodes):
        if node[1]:
            print(f"12345-{node[0]}: {node[1]}", file=sys.stderr)
    return views


def _show_error(console: _Console, options: argparse.Namespace) -> int:
    for view in console.ask(model.Counters(options.of), told.CountersDocument).of:
        for line in error_lines(view, options.session):
            print(line)
    return 0


def _add_batch(console: _Console, options: argparse.Namespace) -> int:
    console.tell(model.BatchAdd(options.name))
    return 0


def _run_batch(console: _Console, options: argparse.Namespace) -> int:
    console.tell(model.BatchRun(options.name, options.timeout))
    print(f"{options.name} is running now")
    return 0


def _stop(console: _Console, options: argparse.Namespace) -> int:
    active = console.ask(model.BatchStop(options.name, options.force), told.ActiveDocument).nodes
    while active:
        print(f"{len(active)} batch in stopping", flush=True)
        time.sleep(1)
        nodes = console.ask(model.BatchQuery(options.name), told.ActiveDocument, 80.0).nodes
        active = [node for node in nodes if node.active]
    print("Batch is stopped")
    return 0


def _list_batch(console: _Console, options: argparse.Namespace) -> int:
    batches = console.ask(model.BatchList(options.name), told.BatchDocument).batches
    if options.name is None:
        for number, batch in enumerate(batches, start=1):
            print(f"{number}) {batch.name}")
        print(f"Total {len(batches)} batches")
        return 0
    (batch,) = batches
    if not (options.active or options.invalid or options.all):
        for line in batch_lines(batch):
            print(line)
        return 0
    if options.test > len(batch.tests):
        raise BadWords(f"lst list_batch: batch {batch.name} has {len(batch.tests)} tests")
    of: Any = batch.tests[options.test - 1] if options.test else batch
    for node in of.servers if options.server else of.clients:
        if options.all or (options.active if node.state == "active" else options.invalid):
            print(f"12345-{node.id}: {node.state.capitalize()}{_why(node.error)}")
    return 0


def _query(console: _Console, options: argparse.Namespace) -> int:
    command = model.BatchQuery(options.name, options.test, options.server, options.timeout)
    for turn in range(max(options.loop, 1)):
        if turn:
            time.sleep(options.delay)
        nodes = console.ask(command, told.ActiveDocument, options.timeout * 16).nodes
        running = sum(bool(node.active) for node in nodes)
        errors = sum(bool(node.error) for node in nodes)
        if running:
            print(f"Batch is running on {running} of {len(nodes)} nodes, {errors} errors")
        else:
            print(f"Batch is idle, {errors} errors")
        for node in nodes:
            state = "Error" if node.error else "Running" if node.active else "Idle"
            wanted = {"Error": options.error, "Running": options.active, "Idle": options.idle}
            if options.all or wanted[state]:
                print(f"12345-{node.id}: {state}{_why(node.error)}")
        sys.stdout.flush()
    return 0


def _add_test(console: _Console, options: argparse.Namespace) -> int:
    if options.kind == "ping" and options.parameters:
        raise BadWords("lst add_test: ping takes no parameters")
    distribute, span = options.distribute
    command = model.TestAdd(
        source=options.source,
        sink=options.sink,
        batch=options.batch,
        loop=options.loop,
        concurrency=options.concurrency,
        distribute=distribute,
        span=span,
        brw=read_brw(options.parameters) if options.kind == "brw" else None,
        stop_on_error=not options.keep_going,
    )
    lacks = [node for group in console.ask(command, told.GroupDocument).groups for node in group.nodes]
    for node in {node.id: node for node in lacks}.values():
        print(f"12345-{node.id} is {node.state}, and not in the test: {node.error}", file=sys.stderr)
    print("Test was added successfully")
    return 0


_DO: Final[dict[str, Callable[[_Console, argparse.Namespace], int]]] = {
    "new_session": _new_session,
    "end_session": _end_session,
    "show_session": _show_session,
    "ping": _ping,
    "add_group": _add_group,
    "del_group": _del_group,
    "update_group": _update_group,
    "list_group": _list_group,
    "stat": _stat,
    "show_error": _show_error,
    "add_batch": _add_batch,
    "run": _run_batch,
    "stop": _stop,
    "list_batch": _list_batch,
    "query": _query,
    "add_test": _add_test,
}

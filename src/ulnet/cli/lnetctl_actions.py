"""What lnetctl's commands do: words become a request, the reply becomes text."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable
from functools import partial

from ulnet.cli.files import write_text
from ulnet.cli.lnetctl_bond import BOND_BUILDERS, bond_add
from ulnet.cli.lnetctl_errors import report_errors
from ulnet.cli.lnetctl_fault import FAULT_BUILDERS, added
from ulnet.cli.lnetctl_health import HEALTH_BUILDERS
from ulnet.cli.lnetctl_kernel import KERNEL_ONLY, say_why
from ulnet.cli.lnetctl_nidlist import NIDLIST, run_nidlist
from ulnet.cli.lnetctl_options import BadValue, Parsed, UsageError, names_of, number
from ulnet.cli.lnetctl_policy import POLICY_BUILDERS, SaidPlainly
from ulnet.cli.lnetctl_routing import ROUTER_WORDS, ROUTING_BUILDERS
from ulnet.cli.lnetctl_words import Command
from ulnet.dlc import model
from ulnet.dlc.client import Client, as_mapping, not_sent
from ulnet.dlc.deadlines import deadline_of
from ulnet.dlc.errors import DlcError, ErrorItem
from ulnet.dlc.protocol import Reply, document_of
from ulnet.dlc.settings import SETTINGS
from ulnet.dlc.yaml_out import PING, emit, emit_document

__all__ = ["perform"]

_HOST_NAME = r"[A-Za-z][A-Za-z0-9._-]*\Z"
_MOST_SHOWN = 1 << 31
_LONGEST_WAIT = 3600.0
_STARTING = 3  # `enable` of a node that routes, and has not told peers so
_WRONG_WORDS = 255  # exit status


def perform(command: Command, parsed: Parsed, socket_path: str | None) -> int:
    """Run one command; the exit status."""
    action = command.action
    if action in _RUNNERS:
        return _RUNNERS[action](parsed, socket_path)
    try:
        request = _BUILDERS[action](parsed) if action in _BUILDERS else _asked(command, parsed)
        with Client(socket_path) as client:
            reply = client.request(request, deadline_of(request))
    except SaidPlainly as said:
        sys.stdout.write(str(said))
        return 256 - errno.EINVAL
    except UsageError as bad:
        sys.stderr.write(f"{bad}\n")
        return _WRONG_WORDS
    except BadValue as bad:
        kind = getattr(model, command.request)
        return report_errors([ErrorItem(kind.verb, kind.entity, -errno.EINVAL, str(bad))])
    except DlcError as refused:
        return report_errors([refused.item])
    for note in reply.notes:
        from ulnet.nid.errors import escaped  # what is of no use to most commands is not loaded

        sys.stderr.write(f"lnetctl: note: {escaped(note)}\n")  # of lnetd, which may not be root
    try:
        return _FINISHERS.get(action, _print)(request, parsed, reply)
    except DlcError as bad:  # what came is no document
        return report_errors([not_sent(request, bad.errno, bad.descr).item])


def _print(request: model.Request, parsed: Parsed, reply: Reply) -> int:
    document = as_mapping(reply)
    if parsed.flag("json"):
        import json

        sys.stdout.write(json.dumps(document) + "\n")
    else:
        sys.stdout.write(emit_document(document))
    return report_errors(reply.errors)


# Words to requests -------------------------------------------------------------------------------------


def _asked(command: Command, parsed: Parsed) -> model.Request:
    """The request of a command whose options are its fields."""
    kind: type[model.Request] = getattr(model, command.request)
    fields = {option.field or option.name: option for option in command.options if parsed.flag(option.name)}
    given = {name: parsed.value(one) for name, one in fields.items() if name in kind.__struct_fields__}
    if "tunables" in kind.__struct_fields__:
        given["tunables"] = parsed.tunables()
    if command.operands:
        given["nids"] = names_of(",".join(parsed.operands))
    return kind(**given)


def _net_add(parsed: Parsed) -> model.Request:
    bond = bond_add(parsed)
    if bond is not None:
        return bond
    tunables = parsed.tunables()
    if parsed.flag("ip2net"):
        return _net_match(parsed, tunables)
    return model.NetAdd(
        net=parsed.text("net"),
        interfaces=names_of(parsed.text("if")),
        nids=names_of(parsed.text("nid")),
        tunables=tunables,
        cpts=parsed.text("cpt"),
    )


def _net_match(parsed: Parsed, tunables: model.Tunables) -> model.Request:
    from ulnet.dlc.legacy import LegacyError, read_ip2nets

    try:
        rules = read_ip2nets(parsed.text("ip2net") or "", tunables, parsed.text("cpt"))
    except LegacyError as bad:
        raise BadValue(str(bad)) from None
    return model.NetMatch(rules)


def _set(name: str, parsed: Parsed) -> model.Request:
    """A setting. What is no number is refused in the words and with the status of the real tool."""
    if len(parsed.operands) != 1:
        text = f"{name} takes one value: write 'lnetctl set {name} VALUE'"
        raise DlcError(errno.EINVAL, text, verb="add", entity=name)
    word = parsed.operands[0]
    if name == "discovery" and word == "verify":
        return model.GlobalSet({name: 2})
    way_out = "write 0, 1 or verify" if name == "discovery" else "write a number that is not too large"
    try:
        value = number(name, word)
    except BadValue:
        text = f"cannot parse {name} value {word!r}: {way_out}"
        raise DlcError(errno.EPERM, text, verb="parser", entity="set") from None
    if name == "discovery" and value not in (0, 1):  # also 2, which today's tool takes for 1
        raise DlcError(errno.EINVAL, f"discovery {word} is out of range: {way_out}", verb="add", entity=name)
    return model.GlobalSet({SETTINGS[name].name or name: value})


def _peer_add(parsed: Parsed) -> model.Request:
    return model.PeerAdd(
        primary=parsed.text("prim_nid"),
        nids=names_of(parsed.text("nid")),
        multi_rail=not parsed.flag("non_mr"),
        lock_primary=parsed.flag("lock_prim"),
    )


def _peer_show(parsed: Parsed) -> model.Request:
    most = _at_most(parsed, "max")
    nids, after = names_of(parsed.text("nid")), parsed.text("after")
    return model.PeerShow(nids, parsed.level("verbose"), parsed.flag("load"), most, after)


def _ping(parsed: Parsed) -> model.Request:
    nids = [name for word in parsed.operands for name in names_of(word)]
    if not nids:
        raise BadValue("no NID is named: write one or more, such as 10.0.0.2@tcp")
    timeout = parsed.seconds("timeout") or 1.0
    if timeout > _LONGEST_WAIT:
        text = f"--timeout {timeout:g} is too long: at most {_LONGEST_WAIT:g} seconds"
        raise BadValue(text)
    return model.Ping(nids=[_resolved(nid) for nid in nids], source=parsed.text("source"), timeout=timeout)


def _discover(parsed: Parsed) -> model.Request:
    nids = [name for word in parsed.operands for name in names_of(word)]
    if not nids:
        text = "no NID is named: write one or more, such as 10.0.0.2@tcp"
        raise BadValue(text)
    force, verify = parsed.flag("force"), parsed.flag("verify")
    if force and verify:
        text = "--force and --verify exclude each other: to verify changes nothing"
        raise BadValue(text)
    return model.Discover(nids=[_resolved(nid) for nid in nids], force=force, verify=verify)


def _explain(parsed: Parsed) -> model.Request:
    target = parsed.text("to")
    if not target:
        raise BadValue("no peer is named: write --to NID")
    size, numa = parsed.number("size") or 0, parsed.number("numa") or 0
    if not 0 <= size <= 1 << 20:
        raise BadValue(f"--size {size}: a message has 0 to 1048576 bytes")
    if not 0 <= numa <= 4096:
        raise BadValue(f"--numa {numa}: CPTs are numbered from 0")
    return model.Explain(target=target, source=parsed.text("from"), size=size, numa=numa)


def _export(parsed: Parsed) -> model.Request:
    if len(parsed.operands) > 1:
        text = f"one file at a time: {parsed.operands[1]!r} is one too many"
        raise BadValue(text)
    return model.Export(backup=parsed.flag("backup"))


def _stats_heat(parsed: Parsed) -> model.Request:
    top = _at_most(parsed, "top")
    return model.UseShow("peers" if parsed.flag("peers") else "nets", top)


def _at_most(parsed: Parsed, name: str) -> int:
    count = parsed.number(name) or 0
    if not 0 <= count < _MOST_SHOWN:
        text = f"--{name} {count}: write how many to show, 0 for all, less than {_MOST_SHOWN}"
        raise BadValue(text)
    return count


def _resolved(nid: str) -> str:
    """A NID with a host's name in place of its address, with the address."""
    name, at, net = nid.partition("@")
    if not at or not re.match(_HOST_NAME, name) or net == "lo":
        return nid
    import socket

    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as unknown:
        text = f"{nid}: no host is called {name!r} ({unknown.strerror}): write its IP address"
        raise BadValue(text) from None
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return f"{found[0][4][0]}@{net}"


_BUILDERS: dict[str, Callable[[Parsed], model.Request]] = {
    "net_add": _net_add,
    "peer_add": _peer_add,
    "peer_show": _peer_show,
    "explain": _explain,
    "ping": _ping,
    "discover": _discover,
    "stats_nets": lambda parsed: model.SumsShow("nets", parsed.text("net")),
    "stats_peers": lambda parsed: model.SumsShow("peers", parsed.text("nid")),
    "stats_heat": _stats_heat,
    "export": _export,
    **BOND_BUILDERS,
    **POLICY_BUILDERS,
    **FAULT_BUILDERS,
    **HEALTH_BUILDERS,
    **ROUTING_BUILDERS,
}
_BUILDERS.update({f"set_{name}": partial(_set, name) for name, one in SETTINGS.items() if one.help})


# Commands of more than one request ---------------------------------------------------------------------


def _import(parsed: Parsed, socket_path: str | None) -> int:
    from ulnet.cli.lnetctl_import import run_import  # late: it reads YAML

    return run_import(parsed, socket_path)


_RUNNERS: dict[str, Callable[[Parsed, str | None], int]] = {
    "import": _import,
    NIDLIST.action: run_nidlist,
    **{command.action: partial(say_why, command.words[0]) for command in KERNEL_ONLY},
}


# Replies to text ---------------------------------------------------------------------------------------


def _print_pings(request: model.Request, parsed: Parsed, reply: Reply) -> int:
    """Answers, then what failed: both on stdout, as today."""
    document = as_mapping(reply)
    if not document:
        return report_errors(reply.errors)
    sys.stdout.write(emit_document(document))
    failed = [{item.entity: None, "errno": item.errno, "descr": item.descr} for item in reply.errors]
    if failed:
        sys.stdout.write(emit({request.verb: failed}, PING))
    return reply.errors[0].exit_code if reply.errors else 0


def _print_explanation(request: model.Request, parsed: Parsed, reply: Reply) -> int:
    document = as_mapping(reply)
    if document:
        from ulnet.dlc.documents_explain import ExplainDocument

        document_of(reply.result, ExplainDocument)  # all that is read below is there
    if document and parsed.flag("json"):
        import json

        sys.stdout.write(json.dumps(document["explain"]) + "\n")
    elif document:
        from ulnet.cli.lnetctl_explain import table

        sys.stdout.write(table(document, _line_width()))
    return report_errors(reply.errors)


def _print_routing(request: model.Request, parsed: Parsed, reply: Reply) -> int:
    """As YAML the seconds left are a comment: the keys are those of the real tool."""
    left = as_mapping(reply).get("seconds left")
    if left is None or parsed.flag("json"):
        return _print(request, parsed, reply)
    from ulnet.dlc.documents_routing import RoutingDocument

    states = document_of(reply.result, RoutingDocument).routing
    starts = bool(states) and states[-1].get("enable") == _STARTING
    document = as_mapping(reply)
    del document["seconds left"]
    sys.stdout.write(emit_document(document))
    sys.stdout.write(f"# routing will have {'started' if starts else 'stopped'} within {left} s\n")
    return report_errors(reply.errors)


def _line_width() -> int:
    """Columns of the terminal; 0 where there is none."""
    import shutil

    return shutil.get_terminal_size((0, 0)).columns if sys.stdout.isatty() else 0


def _write_export(request: model.Request, parsed: Parsed, reply: Reply) -> int:
    if not parsed.operands:
        return _print(request, parsed, reply)
    if reply.errors:
        return report_errors(reply.errors)
    path = parsed.operands[0]
    try:
        write_text(path, emit_document(as_mapping(reply)))
    except OSError as error:
        number = error.errno or errno.EIO
        return report_errors(
            [not_sent(request, number, f"{path} cannot be written: {os.strerror(number)}").item]
        )
    return 0


def _after_set(name: str, request: model.Request, parsed: Parsed, reply: Reply) -> int:
    """Errors under the setting's name; a bad value of those of health has an errno of its own."""
    swap = {-errno.EINVAL: -SETTINGS[name].error} if name in SETTINGS else {}
    errors = [ErrorItem("add", name, swap.get(item.errno, item.errno), item.descr) for item in reply.errors]
    return report_errors(errors)


def _say_added(request: model.Request, parsed: Parsed, reply: Reply) -> int:
    if not reply.errors:
        sys.stdout.write(added(request))
    return report_errors(reply.errors)


_FINISHERS: dict[str, Callable[[model.Request, Parsed, Reply], int]] = {
    "ping": _print_pings,
    "discover": _print_pings,
    "explain": _print_explanation,
    "export": _write_export,
    "routing_show": _print_routing,
    "lctl_drop_add": _say_added,
    "lctl_delay_add": _say_added,
}
_FINISHERS.update({f"set_{name}": partial(_after_set, name) for name in (*SETTINGS, *ROUTER_WORDS)})

"""lnetd: an LNet node as a daemon in the foreground, controlled by lnetctl over a Unix socket."""

from __future__ import annotations

import argparse
import asyncio
import errno
import logging
import os
import resource
import shutil
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from ulnet import __version__
from ulnet.cli.extras import how_to_add
from ulnet.cli.files import Unreadable, read_text
from ulnet.cli.garbage import Searches, collect_seldom
from ulnet.cli.log_lines import log_to_stderr
from ulnet.cli.observed import place
from ulnet.cli.parsers import command_parser
from ulnet.core.lines import Line
from ulnet.core.status import LNetError, of_system
from ulnet.dlc.caller import Groups
from ulnet.dlc.config import Step, read_config
from ulnet.dlc.endpoint import Endpoint
from ulnet.dlc.errors import ErrorItem
from ulnet.dlc.legacy import LegacyError, read_networks
from ulnet.dlc.model import AccessAdd, NetAdd, NetMatch, RouteAdd, RoutingSet
from ulnet.dlc.modprobe import Parameters, is_setting, module_requests, read_modprobe
from ulnet.dlc.paths import default_socket
from ulnet.dlc.protocol import ProtocolError
from ulnet.dlc.server import ControlServer
from ulnet.dlc.yaml_out import emit_errors
from ulnet.host import HostError, become, group_number, load_topology
from ulnet.lnd.loop import new_event_loop
from ulnet.lnd.o2ib import O2ibParams
from ulnet.lnd.tcp import TcpParams
from ulnet.node import Node
from ulnet.node.admin import Admin
from ulnet.selftest.addition import SelftestAddition

if TYPE_CHECKING:
    from ulnet.observe.exporter import Exporter

__all__ = ["parser", "run"]

_log = logging.getLogger("ulnet.lnetd")

_EPILOG = """\
example:
  lnetd --config /etc/ulnet/lnet.yaml
  lnetctl net add --net tcp --if eth0

  lnetd --modprobe /etc/modprobe.d/lustre.conf
  lnetd --ip2nets 'tcp(eth0) 192.168.0.*; tcp1 10.*.*.*'

FILE holds sections as `lnetctl export --backup` writes them; if anything in it is wrong, nothing is
started, and it is told: all that cannot be read, or else all that the node refuses. `ulnet check --live FILE`
tells both together. LNet is up (with 0@lo) when lnetd is up; with --unconfigured it waits for
`lnetctl lnet configure`. SIGTERM, SIGINT and SIGHUP let what is under way finish, then end; a second one
ends at once. Without --socket: ULNET_SOCKET, else /run/ulnet/lnetd.sock for root and
$XDG_RUNTIME_DIR/ulnet/lnetd.sock for others. Without root, peers with accept=secure (the default of
kernel nodes) refuse this node's connections, and the port must be above 1023.
"""

_NOTE = {"event": "config.note"}
_LEVELS = ("debug", "info", "warning", "error")


def run(options: argparse.Namespace) -> int:
    """The exit status of the daemon, when it has ended."""
    log_to_stderr(options.log_level, options.log_format)
    _allow_many_files()
    collect_seldom()
    try:
        parameters, steps = _parameters(options), _read(options.config)
        groups = Groups(*[name and group_number(name) for name in (options.readers, options.administrators)])
        if options.user is not None:
            _become(options.user, options.socket, groups)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(_run(options, parameters, steps, groups))
    except (LNetError, HostError, ProtocolError) as refused:
        _log.error("%s", refused.text, extra={"event": "daemon.refused"})
    except _ConfigError as bad:
        sys.stderr.write(emit_errors(bad.errors))
        source = options.config or options.modprobe or "the start-up options"
        count = len(bad.errors)
        text = f"{source}: {count} error{'s' * (count != 1)}; nothing is started{bad.more}"
        _log.error("%s", text, extra={"event": "daemon.refused"})
    return 1


class _ConfigError(Exception):
    """The start-up file asks for what cannot be; `more` is where more may be told."""

    def __init__(self, errors: list[ErrorItem], more: str = "") -> None:
        super().__init__()
        self.errors = errors
        self.more = more


def parser() -> argparse.ArgumentParser:
    """Its words."""
    parser = command_parser("lnetd", "An LNet node in user space.", _EPILOG)
    parser.add_argument("--config", metavar="FILE", help="YAML to start with")
    parser.add_argument("--modprobe", metavar="FILE", help="module parameters to start with, before --config")
    parser.add_argument("--networks", metavar="TEXT", help="as the module parameter: tcp0(eth0,eth1)")
    parser.add_argument("--ip2nets", metavar="TEXT", help="as the module parameter: tcp(eth0) 10.0.*.*")
    parser.add_argument("--routes", metavar="TEXT", help="as the module parameter: o2ib 10.0.0.1@tcp")
    parser.add_argument("--socket", metavar="PATH", default=default_socket(), help="control socket")
    parser.add_argument(
        "--readers", metavar="GROUP", help="its members may look (show, export, metrics), and change nothing"
    )
    parser.add_argument("--administrators", metavar="GROUP", help="its members may do what root may")
    parser.add_argument("--user", metavar="NAME", help="give up root for this user, but for two capabilities")
    parser.add_argument("--unconfigured", action="store_true", help="wait for `lnetctl lnet configure`")
    parser.add_argument(
        "--accept",
        choices=("secure", "all", "none"),
        default="secure",
        help="whose connections: from source ports below 1024 (default), all, none",
    )
    parser.add_argument(
        "--any-source",
        action="store_true",
        help="believe a NID that is called from another address, as kernel nodes do",
    )
    who = "connect, or do WHAT (ping, push, portal4); WHO: NID ranges and own interfaces; may be repeated"
    for name, text in (("allow", "these alone may"), ("deny", "these may not")):
        parser.add_argument(
            f"--{name}", metavar="[WHAT=]WHO", action="append", default=[], help=f"{text} {who}"
        )
    parser.add_argument(
        "--credentials",
        metavar="DIR",
        help="certificate and key, for nets with security (ulnet pki)",
    )
    parser.add_argument("--accept-port", type=int, default=988, metavar="PORT", help="TCP port (988)")
    parser.add_argument(
        "--accept-port-bulk",
        type=int,
        metavar="PORT",
        help="TCP port of connections for bulk (that of --accept-port)",
    )
    parser.add_argument("--topology", metavar="FILE", help="YAML in place of the machine's NUMA nodes")
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--cpu-npartitions", type=int, default=0, metavar="N", help="CPTs (one a NUMA node)")
    parts.add_argument(
        "--cpu-pattern", default="", metavar="TEXT", help="what is in each CPT: '0[0-3] 1[4-7]', 'N 0[0,1]'"
    )
    parser.add_argument(
        "--balance",
        choices=("expected", "documents"),
        default="expected",
        help="rails by expected completion (default), or to the letter of the Multi-Rail design document: "
        "nets take turns",
    )
    parser.add_argument(
        "--recovery",
        choices=("backoff", "documents"),
        default="backoff",
        help="ping what failed after 1, 2, 4, ... s (default), or by the Health design document: "
        "each second, up by 1",
    )
    parser.add_argument(
        "--selftest", action="store_true", help="take part in tests of `lst` and other consoles"
    )
    parser.add_argument("--drain", type=_seconds, default=5.0, metavar="S", help="seconds to finish in (5)")
    parser.add_argument(
        "--log-level",
        choices=_LEVELS,
        default="info",
        help="what goes to stderr (info); debug: connections and requests as well",
    )
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="lines for people (text), or JSON with the names of events (docs/watching.md)",
    )
    parser.add_argument(
        "--metrics",
        type=place,
        metavar="ADDRESS:PORT",
        help="serve metrics to Prometheus there, as ulnet exporter",
    )
    parser.add_argument("--version", action="version", version=f"lnetd {__version__} (ulnet)")
    return parser


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text}: give 0 to 3600 seconds")
    return seconds


def _tell_systemd(news: str) -> None:
    """To the service manager, if it wants to know (Type=notify)."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as to_manager:
        try:
            to_manager.sendto(news.encode(), "\0" + path[1:] if path.startswith("@") else path)
        except OSError as error:
            _log.warning("the service manager cannot be told %s: %s", news, error.strerror)


def _allow_many_files() -> None:
    """Every connection is a descriptor: use what the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _parameters(options: argparse.Namespace) -> list[Parameters]:
    """What module parameters ask for; what nothing corresponds to is a line of the log."""
    names = ("networks", "ip2nets", "routes")
    given = {name: getattr(options, name) for name in names if getattr(options, name)}
    try:
        found = [module_requests(given)]
        if options.modprobe is not None:
            found.insert(0, read_modprobe(_text_of(options.modprobe)))
    except LegacyError as bad:
        raise LNetError(errno.EINVAL, str(bad)) from None
    for parameters in found:
        for request in parameters.requests:
            if isinstance(request, RouteAdd):
                request.shared = True
        for note in parameters.notes:
            _log.info("%s: %s", options.modprobe, note, extra=_NOTE)
        for text in parameters.unknown:
            _log.warning("%s: %s", options.modprobe, text, extra=_NOTE)
    return found


def _o2ib(parameters: list[Parameters]) -> O2ibParams:
    """The parameters of the o2ib driver. Raises LNetError."""
    given = {name: value for one in parameters for name, value in one.o2ib.items()}
    return replace(O2ibParams(), **given)  # type: ignore[arg-type]


def _tcp(options: argparse.Namespace, parameters: list[Parameters]) -> TcpParams:
    """The parameters of the TCP driver. Raises LNetError."""
    params = TcpParams(
        accept=options.accept,
        check_source=not options.any_source,
        credentials=options.credentials,
        accept_port=options.accept_port,
        accept_port_bulk=options.accept_port_bulk,
    )
    given = {name: value for one in parameters for name, value in one.tcp.items()}
    return replace(params, **given)  # type: ignore[arg-type]


def _read(path: str | None) -> list[Step]:
    if path is None:
        return []
    config = read_config(_text_of(path))
    if config.errors:
        more = f", and no request was tried: `ulnet check --live {path}` tells what a node refuses as well"
        raise _ConfigError(config.errors, more)
    return config.steps


def _text_of(path: str) -> str:
    try:
        return read_text(path)
    except Unreadable as bad:
        raise LNetError(bad.errno, str(bad)) from None


def _become(user: str, path: str, groups: Groups) -> None:
    """Give up root; if the control socket's directory is to be made, it is the user's. Raises HostError."""
    directory = os.path.dirname(path) or "."
    try:
        if not os.path.isdir(directory):
            os.makedirs(directory, mode=0o750)
            with suppress(LookupError):  # which is told below
                shutil.chown(directory, user, groups.opened_to)
    except OSError as error:
        raise HostError(error.errno or errno.EIO, f"{directory} cannot be made: {error.strerror}") from None
    become(user, [gid for gid in groups if gid is not None])
    for file in (__file__, os.__file__):  # modules of both are loaded later, too
        if not os.access(file, os.R_OK):
            text = f"user {user} may not read {file}: install Python and ulnet where that user may"
            raise HostError(errno.EACCES, text)


def _look_for(credentials: str | None) -> None:
    """Warn of a directory of certificates that is not there: the first secured net would tell it."""
    if credentials is not None and not os.path.isdir(credentials):
        text = "there is no such directory now; nets with `security` need its files when they are added"
        _log.warning("--credentials %s: %s", credentials, text)


async def _run(
    options: argparse.Namespace, parameters: list[Parameters], steps: list[Step], groups: Groups
) -> int:
    loop = asyncio.get_running_loop()
    Searches(loop).search()
    _look_for(options.credentials)
    stop = asyncio.Event()

    def begin_to_end() -> None:
        stop.set()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)

    node = Node(
        o2ib=_o2ib(parameters),
        tcp=_tcp(options, parameters),
        topology=load_topology(options.topology) if options.topology is not None else None,
        cpu_pattern=options.cpu_pattern,
        cpu_npartitions=options.cpu_npartitions,
        balance=options.balance,
        recovery=options.recovery,
        allow=options.allow,
        deny=options.deny,
    )
    selftest = SelftestAddition(node, on=options.selftest)
    given = [Step(one, 0) for module in parameters for one in module.requests if not is_setting(one)]
    startup = _in_order(given + steps)
    at_all = [*_first_interface(startup), *startup]
    admin = Admin(node, startup=at_all, parameters=parameters, drain=options.drain, additions=[selftest])
    endpoint = Endpoint(options.socket, groups.opened_to)
    server = ControlServer(endpoint, admin.handle, groups=groups)
    exporter: Exporter | None = None
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, begin_to_end)
        if not options.unconfigured:
            await node.start()
            admin.begin_additions()
            errors = await admin.set_parameters() + await admin.apply(startup)
            if errors:
                raise _ConfigError(errors)
        await server.start()
        exporter = _exporter(options)
        text = f"ready: LNet is {'up' if node.running else 'down'}, control socket {options.socket}"
        _log.info("%s", Line("daemon.ready", text, socket=options.socket))
        _tell_systemd("READY=1")
        await stop.wait()
        _log.info("stopping", extra={"event": "daemon.stopping"})
        _tell_systemd("STOPPING=1")
    finally:
        if exporter is not None:
            await asyncio.to_thread(exporter.close)  # its threads ask this node
        await server.close(options.drain)
        await admin.end_additions()
        await node.close(options.drain)
    _log.info("stopped", extra={"event": "daemon.stopped"})
    return 0


def _in_order(steps: list[Step]) -> list[Step]:
    """Access lists come first, before there are nets; routes that all nodes share come last."""
    told = any(isinstance(step.request, RoutingSet) for step in steps)
    first: list[Step] = []
    last: list[Step] = []
    others: list[Step] = []
    for step in steps:
        request = step.request
        if isinstance(request, AccessAdd):
            first.append(step)
        elif isinstance(request, RouteAdd) and request.shared:
            request.as_told = told
            last.append(step)
        else:
            others.append(step)
    return first + others + last


def _first_interface(startup: list[Step]) -> list[Step]:
    """What `lnet configure --all` begins with where nobody has named a net: tcp on the first interface."""
    if any(isinstance(step.request, NetAdd | NetMatch) for step in startup):
        return []
    return [Step(request, 0) for request in read_networks("tcp")]


def _exporter(options: argparse.Namespace) -> Exporter | None:
    """Metrics of this node, asked by its own control socket. Raises LNetError."""
    if options.metrics is None:
        return None
    try:
        from ulnet.observe.exporter import Exporter
    except ImportError:
        raise LNetError(
            errno.ENOENT, f"--metrics takes prometheus_client, which is missing: {how_to_add('metrics')}"
        ) from None
    from ulnet.observe.source import SocketSource

    address, port = options.metrics
    try:
        exporter = Exporter(SocketSource(options.socket), address, port).start()
    except OSError as failed:
        number = failed.errno or errno.EADDRNOTAVAIL
        raise of_system(
            number, f"--metrics: cannot listen on {address}, port {port}: {failed.strerror}"
        ) from None
    text = f"metrics: port {exporter.port} of {address}"
    _log.info("%s", Line("daemon.metrics", text, address=address, port=exporter.port))
    return exporter

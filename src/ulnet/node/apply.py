"""Bring a running node to a configuration file: a dry run tells what it means, only the difference is done.

The file means what a node has that is started with it, on this one's host and with its options: what it does
not say is the default, and what it does not name goes. Who asks may be in another network namespace.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import NamedTuple

from ulnet.dlc.changes import Configuration, Todo, changes
from ulnet.dlc.client import as_mapping
from ulnet.dlc.config import Config, Step, read_config
from ulnet.dlc.differences import Change, compare, meaning_of
from ulnet.dlc.errors import DlcError, ErrorItem
from ulnet.dlc.model import Export, NetAdd, NetShow, OptionsShow, Request
from ulnet.dlc.modprobe import Parameters, is_setting
from ulnet.dlc.protocol import HEADER_SIZE, Answer, Reply, decode_reply, document_of, encode_reply
from ulnet.dlc.yaml_out import emit_document
from ulnet.host import Link
from ulnet.nid import NetType
from ulnet.node.admin import Admin
from ulnet.node.admin.options import OptionsDocument
from ulnet.node.dry_run import dry_run, invented_links

__all__ = ["Applied", "Ask", "Tell", "apply_config", "ask_admin", "plan_config", "plan_import"]

Ask = Callable[[Request], Awaitable[Reply]]
Tell = Callable[[Change], None]


class Applied(NamedTuple):
    """What was done, and what was refused; where a file was refused as a whole, nothing was done."""

    done: list[Change]
    refused: list[ErrorItem]


async def apply_config(ask: Ask, config: Config, tell: Tell = lambda change: None) -> Applied:
    """Bring the node that answers `ask` to what a file says. Raises DlcError when it does not answer.

    A file of which a fresh node would refuse something is refused as a whole. A step that is refused, though
    the file is not, does not keep others from being done. `tell` hears of each change when it was made.
    """
    now, links, options = await _read(ask)
    wanted, refused = await _meant(config, links, options)
    return await _bring(ask, now, wanted, tell) if not refused else Applied([], refused)


async def plan_import(ask: Ask, config: Config) -> Applied:
    """What `import` would do, item by item, done on a copy of the node. Raises DlcError."""
    now, links, options = await _read(ask)
    async with _copy(now, links, options) as admin:
        refused = await _all_refused(admin, config)
        then = await _configuration(ask_admin(admin))
    before, after = meaning_of(now.requests), meaning_of(then.requests)
    return Applied(compare(before, after), refused)


async def plan_config(ask: Ask, config: Config) -> Applied:
    """What `apply_config` would do, done on a copy of the node. Raises DlcError."""
    now, links, options = await _read(ask)
    wanted, refused = await _meant(config, links, options)
    if refused:
        return Applied([], refused)
    async with _copy(now, links, options) as admin:
        return await _bring(ask_admin(admin), now, wanted, lambda change: None)


def ask_admin(admin: Admin) -> Ask:
    """A node in this process, as it answers over the control socket."""

    async def ask(request: Request) -> Reply:
        try:
            answer = await admin.handle(request)
        except DlcError as refused:
            answer = Answer(errors=[refused.item])
        return decode_reply(encode_reply(answer)[HEADER_SIZE:])

    return ask


async def _asked(ask: Ask, request: Request) -> Reply:
    reply = await ask(request)
    for item in reply.errors:
        raise DlcError(-item.errno, item.descr, verb=item.verb, entity=item.entity)
    return reply


async def _read(ask: Ask) -> tuple[Configuration, list[Link], OptionsDocument]:
    """What a node is configured as, with the interfaces for that, and its options. Raises DlcError."""
    reply = await _asked(ask, OptionsShow())
    try:
        options: OptionsDocument = document_of(reply.result, OptionsDocument)
    except DlcError:
        text = "this lnetd does not say which interfaces its host has, it is of another version: restart it"
        raise DlcError(errno.EPROTO, text, verb="show", entity="options") from None
    now = await _configuration(ask)
    used = {name for one in now.requests if isinstance(one, NetAdd) for name in one.interfaces}
    links = invented_links(now.requests, options.links)
    return now, [replace(one, up=True) if one.name in used else one for one in links], options


async def _configuration(ask: Ask) -> Configuration:
    text = emit_document(as_mapping(await _asked(ask, Export(backup=True))))
    nids = {}
    for net in as_mapping(await _asked(ask, NetShow()))["net"]:
        for ni in net["local NI(s)"]:
            nids[net["net type"], " ".join(ni.get("interfaces", {"": ni["nid"]}).values())] = ni["nid"]
    return Configuration([step.request for step in read_config(text).steps], nids)


def _fresh(links: Sequence[Link], options: OptionsDocument) -> AbstractAsyncContextManager[Admin]:
    parameters = [Parameters([], [], (), drivers) for drivers in options.drivers]
    settings = [one for one in options.requests if is_setting(one)]
    return dry_run(
        links,
        cpts=options.cpts,
        nets=[NetType.TCP],
        parameters=[*parameters, Parameters(settings, [])],
        large=options.large,
    )


@asynccontextmanager
async def _copy(now: Configuration, links: Sequence[Link], options: OptionsDocument) -> AsyncIterator[Admin]:
    async with _fresh(links, options) as admin:
        await admin.apply([Step(request, 0) for request in now.requests])
        yield admin


async def _all_refused(admin: Admin, config: Config) -> list[ErrorItem]:
    """Do what a file asks for; what cannot be read of it, and what the node refuses, by their lines."""
    refused = list(zip(config.lines, config.errors, strict=True))
    for step in config.steps:
        refused += [(step.line, item) for item in await admin.apply([step])]
    return [item for _, item in sorted(refused, key=lambda one: one[0])]


async def _meant(
    config: Config, links: Sequence[Link], options: OptionsDocument
) -> tuple[Configuration, list[ErrorItem]]:
    """What a node would have that is started with the file, and what it would refuse of it."""
    if not config.steps and not config.errors:
        text = "the file asks for nothing: all nets, peers and routes would go; "
        text += "if that is wanted, 'lnetctl lnet unconfigure' does it"
        return Configuration([], {}), [ErrorItem("add", "import", -errno.EINVAL, text)]
    async with _fresh(links, options) as admin:
        refused = await _all_refused(admin, config)
        await admin.apply([Step(one, 0) for one in options.requests if not is_setting(one)])
        return await _configuration(ask_admin(admin)), refused


async def _bring(ask: Ask, now: Configuration, wanted: Configuration, tell: Tell) -> Applied:
    done: list[Change] = []
    left = changes(now, wanted)
    refused: list[ErrorItem] = []
    while left:
        again: list[Todo] = []
        refused = []
        for todo in left:
            if todo.group and any(todo.group == other.group for other in again):
                again.append(todo)
                continue
            reply = await ask(todo.request)
            if reply.errors:
                again.append(todo)
                refused += reply.errors
                continue
            for change in todo.changes:
                done.append(change)
                tell(change)
        if len(again) == len(left):
            return Applied(done, refused)
        left = again  # what was in their way may be gone
    if done:
        rest = [change for todo in changes(await _configuration(ask), wanted) for change in todo.changes]
        text = "it was done and is not so: {}; if nobody else changes this node, please report it"
        refused = [ErrorItem("add", "import", -errno.EAGAIN, text.format(change)) for change in rest]
    return Applied(done, refused)

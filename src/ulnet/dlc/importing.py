"""What `import` does with a file, request by request, whoever carries them (spec lnetctl.md §1, §4)."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from ulnet.dlc.client import Client, as_mapping
from ulnet.dlc.deadlines import deadline_of
from ulnet.dlc.errors import ErrorItem
from ulnet.dlc.model import Request
from ulnet.dlc.protocol import Reply
from ulnet.dlc.steps import Config, step_error

if TYPE_CHECKING:  # lnetctl needs no asyncio
    from ulnet.dlc.aclient import AsyncClient

__all__ = ["Imported", "import_config", "import_config_async", "importing"]


class Imported(NamedTuple):
    """What was shown, and what was refused in the order of the file; all the rest was done."""

    document: dict[str, Any]
    errors: list[ErrorItem]


def importing(config: Config) -> Generator[Request, Reply, Imported]:
    """Yields requests, takes their replies. An item that is refused does not keep others from being done."""
    document: dict[str, Any] = {}
    refused = list(zip(config.lines, config.errors, strict=True))
    for step in config.steps:
        reply = yield step.request
        refused += [(step.line, step_error(step, item)) for item in reply.errors]
        _merge(document, as_mapping(reply))
    refused.sort(key=lambda one: one[0])
    return Imported(document, [item for _, item in refused])


def _merge(document: dict[str, Any], more: dict[str, Any]) -> None:
    """Sections that are shown several times become one."""
    for key, value in more.items():
        if isinstance(value, list):
            known = document.setdefault(key, [])
            known += [item for item in value if item not in known]
        else:
            document[key] = value


def import_config(client: Client, config: Config) -> Imported:
    """Do what a file asks for. Raises DlcError when the node does not answer, or nothing sensible."""
    work = importing(config)
    try:
        request = next(work)
        while True:
            request = work.send(client.request(request, deadline_of(request)))
    except StopIteration as end:
        result: Imported = end.value
        return result


async def import_config_async(client: AsyncClient, config: Config) -> Imported:
    """As import_config."""
    work = importing(config)
    try:
        request = next(work)
        while True:
            request = work.send(await client.request(request, deadline_of(request)))
    except StopIteration as end:
        result: Imported = end.value
        return result

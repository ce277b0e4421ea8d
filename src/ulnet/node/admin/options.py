"""What a node was started with, and on: what its clients need to work out what a file means for it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from ulnet.dlc.model import AccessAdd, GlobalSet, OptionsShow, Request
from ulnet.dlc.request import Tunables
from ulnet.host import Link
from ulnet.node.admin.state import AdminState

__all__ = ["OptionsDocument", "show_options"]


class OptionsDocument(Struct):
    """Its CPTs, whether it prefers IPv6, its module parameters: requests, and tunables by net type.

    Of several sources of module parameters the last one counts. `links` are those of its host, which may
    be another than that of who asks.
    """

    cpts: int
    large: bool
    requests: list[Request]
    drivers: list[Mapping[int, Tunables]]
    links: list[Link]


def show_options(state: AdminState, request: OptionsShow) -> OptionsDocument:
    """What a restart would begin with, whatever file it were given. Raises HostError."""
    lists = state.node.start_access
    requests: list[Request] = [AccessAdd([*lists.allow], [*lists.deny])] if lists else []
    added = {name: setting.began for name, setting in state.settings.items() if setting.began}
    requests += [GlobalSet(added)] if added else []
    requests += [one for parameters in state.parameters for one in parameters.requests]
    drivers = [parameters.drivers for parameters in state.parameters]
    return OptionsDocument(state.core.cpts.count, state.large, requests, drivers, state.links())

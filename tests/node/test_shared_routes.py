"""Routes that all nodes of a cluster are told of: `routes=` of module parameters (spec routing.md §3)."""

from __future__ import annotations

import asyncio
import errno

import pytest

from support.fabric import Fabric
from ulnet.core.status import LNetError
from ulnet.dlc.model import RouteAdd
from ulnet.dlc.modprobe import module_requests
from ulnet.node.admin.routes import add_routes

pytestmark = pytest.mark.requirement("HLD-modparams")


@pytest.mark.parametrize("net", ["tcp", "tcp2"])
def test_a_gateway_on_the_net_that_it_leads_to_is_an_error(net: str) -> None:
    """That is right for no node of a cluster: another net was meant."""
    node = Fabric().node("10.0.0.2@tcp")
    (request,) = module_requests({"routes": f"{net} 10.0.0.9@{net}"}).requests
    assert isinstance(request, RouteAdd)
    request.shared = True
    with pytest.raises(LNetError, match="name that one") as refused:
        asyncio.run(add_routes(node, request))
    assert refused.value.errno == errno.EINVAL
    assert not list(node.gateways.table)

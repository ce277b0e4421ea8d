"""Requests with any values in their fields: what is refused has errno and sentence, and changes nothing."""

from __future__ import annotations

import asyncio
import errno
import typing
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.examples import examples
from ulnet.control.instance import LNet
from ulnet.core.msg import Msg
from ulnet.core.ni import NI
from ulnet.core.status import HealthStatus
from ulnet.dlc import model
from ulnet.dlc.errors import DlcError
from ulnet.dlc.protocol import HEADER_SIZE, ProtocolError, decode_request, encode_request
from ulnet.dlc.yaml_out import emit_document
from ulnet.host import Address, Link
from ulnet.nid import NetType, Nid
from ulnet.node import Node
from ulnet.node.admin import Admin

# They wait for peers, or end the node.
LEFT_OUT = (model.Ping, model.Discover, model.LnetUnconfigure, model.LnetConfigure)
KINDS: list[type[Any]] = [kind for kind in typing.get_args(model.Request) if kind not in LEFT_OUT]

TEXTS = st.sampled_from(
    [
        *(
            "tcp",
            "tcp1",
            "tcp9",
            "lo",
            "o2ib",
            "bond0",
            "eth0",
            "eth1",
            "eth0[0]",
            "nix",
            "",
            "*",
            "0@lo",
            "-1",
        ),
        *("10.9.0.1@tcp", "10.9.1.1@tcp1", "10.9.0.[1-9]@tcp", "10.9.0.7@tcp", "10.9.1.7@tcp1", "*@tcp"),
        *(
            "banana",
            "300.1.1.1@tcp",
            "fd00::1@tcp",
            "[0]",
            "[99]",
            "\x00",
            "x" * 5000,
            "nets",
            "peers",
            "drop",
        ),
        *("discovery", "retry_count", "numa_range", "standby", "weights", "10.9.0.1@bond0", "tcp[1-3]", "@"),
    ]
)
NUMBERS = st.sampled_from([-(1 << 40), -1, 0, 1, 2, 3, 255, 256, 4096, 1 << 31, 1 << 63])
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS, st.sampled_from([0.5, -1.0, 1e9]))


def value(kind: Any) -> st.SearchStrategy[Any]:
    """Of that type, mostly; what the type does not allow is refused by the model."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return value(inner[0])
    if origin is list:
        return st.lists(value(inner[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(value(inner[0]), value(inner[1]), max_size=3)
    if origin is typing.Literal:
        return st.sampled_from(inner)
    if inner:
        return st.one_of([value(one) for one in inner])
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return fields(kind)
    return {str: TEXTS, int: NUMBERS, bool: st.booleans()}.get(kind, SCALARS)


def fields(kind: type[msgspec.Struct]) -> st.SearchStrategy[dict[str, Any]]:
    hints = typing.get_type_hints(kind, include_extras=True)
    needed: dict[str, st.SearchStrategy[Any]] = {}
    others: dict[str, st.SearchStrategy[Any]] = {}
    for field in msgspec.structs.fields(kind):
        (needed if field.required else others)[field.encode_name] = value(hints[field.name])
    return st.fixed_dictionaries(needed, optional=others)


@st.composite
def requests(draw: st.DrawFn) -> Any:
    kind = draw(st.sampled_from(KINDS))
    data = {"op": kind.__struct_config__.tag, **draw(fields(kind))}
    try:
        return msgspec.convert(data, model.Request)
    except msgspec.ValidationError:
        return None


def link(number: int) -> Link:
    return Link(f"eth{number}", number + 2, addresses=(Address(f"10.9.{number}.1", 24),))


@asynccontextmanager
async def configured() -> AsyncIterator[Admin]:
    """A node on two nets, with a peer, a route and a rule."""
    async with Node(drivers=lambda core: [_Driver(core)]) as node:
        admin = Admin(node, host=lambda: [link(0), link(1)], drain=0.1)
        for request in (
            model.NetAdd(net="tcp", interfaces=["eth0"]),
            model.NetAdd(net="tcp1", interfaces=["eth1"]),
            model.PeerAdd(primary="10.9.0.7@tcp", nids=["10.9.1.7@tcp1"]),
            model.RouteAdd("tcp5", "10.9.0.8@tcp"),
            model.UdspAdd(src="tcp1", priority=1),
        ):
            await admin.handle(request)
        yield admin


class _Driver:
    """Takes every NI; whatever is sent fails: nobody is called by what is made up here."""

    name = "tcp"
    net_type = NetType.TCP.value
    reports_timeout = True

    def __init__(self, core: LNet) -> None:
        self._core = core

    def startup(self, ni: NI) -> None:
        pass

    def shutdown(self, ni: NI) -> None:
        pass

    def retune(self, ni: NI, timeout: float) -> None:
        pass

    def access_changed(self, ni: NI) -> None:
        pass

    def verify(self, ni: NI, nid: Nid) -> bool:
        return True

    def send(self, ni: NI, msgs: list[Msg]) -> None:
        self._core.state.defer(
            self._core.completed, msgs, HealthStatus.REMOTE_ERROR, errno.EHOSTUNREACH, "nobody"
        )


async def state_of(admin: Admin) -> str:
    if not admin.node.running:
        return "not configured"
    texts = []
    for request in (
        model.Export(backup=True),
        model.RoutingShow(),
        model.FaultShow("drop"),
        model.FaultShow("delay"),
    ):
        answer = await admin.handle(request)
        texts.append(emit_document(msgspec.to_builtins(answer.document, str_keys=False)))
    return "".join(texts)


async def refusal_of(admin: Admin, request: model.Request) -> DlcError | None:
    """What is said against a request; whatever else it raises is a bug."""
    try:
        async with asyncio.timeout(60):
            await admin.handle(request)
    except DlcError as refused:
        return refused
    return None


@pytest.mark.requirement("cfg-005", "cfg-080")
@settings(max_examples=examples(150), deadline=None)
@example(made=[model.UdspAdd(src="tcp", idx=1 << 63)])
@example(made=[model.UdspAdd(src="tcp"), model.UdspAdd(src="tcp")])
@given(made=st.lists(requests(), min_size=1, max_size=12))
async def test_a_refused_request_changes_nothing(made: list[Any]) -> None:
    async with configured() as admin:
        before = await state_of(admin)
        for request in (one for one in made if one is not None):
            refused = await refusal_of(admin, request)
            after = await state_of(admin)
            if refused is not None:
                # That of a rule which is there already has no sign, as today.
                assert refused.item.errno < 0 or isinstance(request, model.UdspAdd), request
                assert refused.item.descr, request
                assert after == before, request
            before = after


@settings(max_examples=examples(300), deadline=None)
@given(request=requests())
def test_whatever_is_in_a_request_it_arrives_or_is_refused(request: Any) -> None:
    if request is None:
        return
    with suppress(ProtocolError):  # nothing else may be raised
        assert decode_request(encode_request(request)[HEADER_SIZE:]) == request

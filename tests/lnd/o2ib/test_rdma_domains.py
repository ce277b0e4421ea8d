"""The port on rdma-core, with libraries that only count: whose memory is in which protection domain."""

from __future__ import annotations

import asyncio
import ctypes as c
import errno
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.rdma import SHAPE
from ulnet.core.status import LNetError
from ulnet.lnd.o2ib import abi
from ulnet.lnd.o2ib.params import O2ibParams
from ulnet.lnd.o2ib.rdma import RdmaDevice, RdmaVerbs
from ulnet.lnd.o2ib.rdma_pair import RdmaPair
from ulnet.lnd.o2ib.verbs import CmEvent, DeviceEvent, Request, Slot
from ulnet.nid import Nid

pytestmark = pytest.mark.requirement("LND-o2ib")
ADDR_RESOLVED, ROUTE_RESOLVED = 0, 2  # events of the connection manager


class Counting:
    """libibverbs and librdmacm: objects are numbers, and what may not be done fails."""

    def __init__(self) -> None:
        self.most_domains = self.most_pairs = 100
        self.done: list[str] = []
        self.domains: set[int] = set()
        self.queue_pairs: dict[int, int] = {}  # domains, by identifier of the connection manager
        self.regions: dict[int, tuple[int, int]] = {}  # domain and access, by key
        self.ids: dict[int, Any] = {}
        self.kept: list[Any] = []  # which C would have allocated
        self.files = [*os.pipe(), *os.pipe(), *os.pipe()]
        self.context = abi.Context(device=1, async_fd=self.files[0])
        self.last = 0

    def number(self) -> int:
        self.last += 1
        return self.last

    def at(self, thing: c.Structure) -> Any:
        self.kept.append(thing)
        return c.pointer(thing)

    def new_id(self) -> Any:
        made = self.at(abi.CmId())
        self.ids[c.addressof(made.contents)] = made
        return made

    def key(self, cm_id: Any) -> int:
        address = c.addressof(cm_id.contents)
        assert address in self.ids, "an identifier that was destroyed is used"
        return address

    def rdma_create_event_channel(self) -> Any:
        return self.at(abi.EventChannel(self.files[2]))

    def rdma_create_id(self, channel: Any, found: Any, context: None, space: int) -> int:
        found._obj.contents = self.new_id().contents
        return 0

    def rdma_bind_addr(self, cm_id: Any, address: Any) -> int:
        cm_id.contents.verbs = c.pointer(self.context)
        return 0

    def rdma_destroy_id(self, cm_id: Any) -> None:
        del self.ids[self.key(cm_id)]

    def rdma_reject(self, cm_id: Any, private: bytes, size: int) -> int:
        self.done.append("reject")
        self.key(cm_id)
        return 0

    def ibv_get_device_name(self, device: int) -> bytes:
        return b"counting0"

    def ibv_create_comp_channel(self, context: int) -> Any:
        return self.at(abi.CompChannel(None, self.files[4]))

    def ibv_create_cq(self, *args: object) -> int:
        return self.number()

    def ibv_alloc_pd(self, context: int) -> int | None:
        if len(self.domains) >= self.most_domains:
            c.set_errno(errno.ENOMEM)
            return None
        self.domains.add(made := self.number())
        return made

    def ibv_dealloc_pd(self, domain: int) -> int:
        self.done.append("domain")
        used = [*self.queue_pairs.values(), *(found for found, _ in self.regions.values())]
        assert domain not in used, "a domain is given back that is in use"
        self.domains.remove(domain)
        return 0

    def ibv_reg_mr(self, domain: int, address: int, size: int, access: int) -> Any:
        assert domain in self.domains
        key = self.number()
        self.regions[key] = domain, access
        return self.at(abi.Mr(pd=domain, addr=address, length=size, lkey=key, rkey=key))

    def ibv_dereg_mr(self, region: Any) -> int:
        self.done.append("region")
        del self.regions[region.contents.rkey]
        return 0

    def rdma_create_qp(self, cm_id: Any, domain: int, attr: Any) -> int:
        assert domain in self.domains, "the connection manager would take its own domain"
        if len(self.queue_pairs) >= self.most_pairs:
            c.set_errno(errno.ENOMEM)
            return -1
        self.queue_pairs[self.key(cm_id)] = domain
        cm_id.contents.qp = self.at(abi.Qp(pd=domain))
        return 0

    def rdma_destroy_qp(self, cm_id: Any) -> None:
        self.done.append("queue pair")
        del self.queue_pairs[self.key(cm_id)]

    def __getattr__(self, name: str) -> Any:
        if name in ("poll_cq", "req_notify_cq", "post_send", "post_recv"):
            return lambda context: lambda *args: 0
        assert name.startswith(("ibv_", "rdma_")), name
        return lambda *args: 0


class Owner:
    """Of a device and of its queue pairs: keeps what it is told, and accepts calls."""

    def __init__(self) -> None:
        self.events: list[tuple[CmEvent, int]] = []
        self.accepted: list[RdmaPair] = []
        self.refused: list[str] = []

    def requested(self, request: Request) -> None:
        try:
            self.accepted.append(cast(RdmaPair, request.accept(self, b"", SHAPE)))
        except LNetError as failed:
            self.refused.append(failed.text)
            request.reject(b"no")

    def managed(self, event: CmEvent, status: int, private: bytes) -> None:
        self.events.append((event, status))

    def device_event(self, event: DeviceEvent, words: str) -> None: ...

    def received(self, slot: Slot) -> None: ...

    def sent(self, tokens: list[object]) -> None: ...

    def broken(self, status: str, here: bool = False) -> None: ...


class World:
    """A device, its owner, and the libraries."""

    def __init__(self, loop: asyncio.AbstractEventLoop, lib: Counting) -> None:
        self.lib = lib
        self.owner = Owner()
        self.reports: list[str] = []
        self.verbs = RdmaVerbs(loop, O2ibParams(), self.reports.append)
        ni = cast(Any, SimpleNamespace(nid=Nid.parse("10.0.0.1@o2ib")))
        self.device: RdmaDevice = self.verbs.open(ni, 987, self.owner)

    def calls(self) -> RdmaPair:
        """A call of ours that has found the way."""
        pair = self.device.connect("10.0.0.2", self.owner, b"", SHAPE)
        pair.managed(ADDR_RESOLVED, 0, b"")
        pair.managed(ROUTE_RESOLVED, 0, b"")
        return pair

    def called(self) -> RdmaPair:
        """A call that came."""
        self.device.requested(self.lib.new_id(), b"")
        return self.owner.accepted[-1]

    def ends(self) -> None:
        """Everything is given back."""
        self.verbs.close()
        self.device.close()
        lib = self.lib
        assert not (lib.domains or lib.queue_pairs or lib.regions or lib.ids)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    loop, lib = asyncio.new_event_loop(), Counting()
    monkeypatch.setattr(abi, "libraries", lambda: lib)
    yield World(loop, lib)
    loop.close()
    for number in lib.files:
        os.close(number)


def domain_of(world: World, pair: RdmaPair) -> int:
    return int(pair.id.contents.qp.contents.pd)


def test_each_connection_has_a_domain_of_its_own(world: World) -> None:
    """Whoever calls: its queue pair is there, its buffers, and all memory of its transfers."""
    lib = world.lib
    assert not lib.domains  # the device has none
    pairs = [world.calls(), world.called(), world.calls(), world.called()]
    domains = [domain_of(world, pair) for pair in pairs]
    assert len(set(domains)) == 4 and set(domains) == lib.domains
    for pair, domain in zip(pairs, domains, strict=True):
        assert [found for found, _ in lib.regions.values()].count(domain) == 1
        sink = pair.register(memoryview(bytearray(100)), True)
        source = pair.register(memoryview(bytes(100)), False)
        assert lib.regions[sink.key] == (domain, abi.ACCESS_REMOTE)
        assert lib.regions[source.key] == (domain, 0)
        sink.release()
        source.release()
    for pair in pairs:
        pair.close()
    world.ends()


def test_a_domain_goes_after_its_queue_pair_and_its_memory(world: World) -> None:
    lib = world.lib
    pair, other = world.called(), world.calls()
    regions = [pair.register(memoryview(bytearray(100)), True) for _ in range(2)]
    early = pair.register(memoryview(bytearray(100)), True)
    early.release()
    assert lib.done == ["region"] and len(lib.domains) == 2
    pair.close()
    assert lib.done == ["region", "queue pair", "region"]  # that of its buffers
    with pytest.raises(LNetError):
        pair.register(memoryview(bytearray(100)), True)
    for region in regions:
        region.release()
        region.release()
    assert lib.done[3:] == ["region", "region", "domain"]
    assert lib.domains == {domain_of(world, other)}
    other.close()
    world.ends()


def test_memory_that_nobody_released_goes_with_the_device(world: World) -> None:
    pair = world.calls()
    pair.register(memoryview(bytearray(100)), True)
    pair.close()
    world.ends()


def test_a_call_of_ours_fails_without_a_domain(world: World) -> None:
    lib = world.lib
    lib.most_domains = 1
    well = world.calls()
    pair = world.calls()
    assert world.owner.events == [(CmEvent.CONNECT_ERROR, errno.ENOMEM)]
    (line,) = world.reports
    assert line.startswith("counting0: no protection domain for another connection: ")
    pair.close()
    assert len(lib.queue_pairs) == len(lib.domains) == 1
    well.close()
    world.calls().close()
    world.ends()


@pytest.mark.parametrize(
    ("limit", "what"), [("most_domains", "protection domain"), ("most_pairs", "queue pair")]
)
def test_a_call_is_refused_without_resources(world: World, limit: str, what: str) -> None:
    """By its identifier, which is destroyed after that."""
    lib = world.lib
    setattr(lib, limit, 0)
    world.device.requested(lib.new_id(), b"")
    (text,) = world.owner.refused
    assert text.startswith(f"counting0: no {what} for ")
    assert lib.done[-1] == "reject"
    assert not (lib.queue_pairs or lib.domains or lib.regions) and len(lib.ids) == 1  # which listens
    setattr(lib, limit, 1)
    world.called().close()
    world.ends()


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_fork_has_none_of_the_devices_of_its_parent(world: World) -> None:
    """What a child writes to the kernel's files would be done with the parent's queue pairs."""
    pair = world.calls()
    lib = world.lib
    world.device.context.cmd_fd = lib.files[1]
    inherited = [lib.files[0], lib.files[1], lib.files[2], lib.files[4]]
    before = [os.fstat(number).st_ino for number in lib.files]
    child = os.fork()
    if not child:
        failed = 1
        try:
            world.verbs.forked()
            assert not any(os.fstat(number).st_ino in before for number in inherited)
            assert [os.fstat(number).st_ino for number in lib.files[3::2]] == before[3::2]
            done = list(lib.done)
            pair.completions()
            pair.close()
            assert lib.done == done
            failed = 0
        finally:
            os._exit(failed)
    assert os.waitpid(child, 0)[1] == 0

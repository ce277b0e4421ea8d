"""Another life behind a NID: what is connected with the former one ends, whichever NI saw it first."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import nullcontext

import pytest

from lnd.conftest import Addresses
from lnd.kit import RawListener, Side, connect, hello_bytes, lnet_frame, put_header, turns, until
from lnd.test_tcp_connect import listening, swallowing
from ulnet.core.status import HealthStatus
from ulnet.nid import Nid
from ulnet.wire.socklnd import ConnType

Make = Callable[..., Side]
CONTROL, NONE = ConnType.CONTROL, ConnType.NONE


def doubt(side: Side, nid: str) -> None:
    """The connections with nid were made a while ago, and may be with a former life."""
    side.peer(nid).confirmed_at -= 10.0
    side.lnd.verify(side.ni, Nid.parse(nid))


async def asked(listener: RawListener, incarnation: int, *, taken: bool = True) -> None:
    """The next caller hears that this life is behind the NID."""
    raw, request, hello = await listener.accept_hello()
    ctype = ConnType(hello.ctype).inverted() if taken else NONE
    await raw.send(hello_bytes(request.nid, hello.src_nid, ctype, incarnation=incarnation))


@pytest.mark.requirement("dyn-065")
@pytest.mark.parametrize("taken", [True, False])
async def test_a_doubted_connection_with_a_former_life_ends(make: Make, at: Addresses, taken: bool) -> None:
    a = make(at.nid(1))
    with listening(a, at.ip(2)) as listener:
        old = await connect(a, at.nid(2), CONTROL, incarnation=7)
        doubt(a, at.nid(2))
        await asked(listener, 8, taken=taken)
        assert await old.rest() == (b"", "EOF")
        if not taken:  # it lost a race, perhaps, and calls itself
            await connect(a, at.nid(2), CONTROL, incarnation=8)
        await until(lambda: a.core.restarted)
        assert a.core.restarted == [Nid.parse(at.nid(2))]


@pytest.mark.requirement("dyn-065")
async def test_a_doubted_connection_with_the_present_life_stays(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    with listening(a, at.ip(2)) as listener:
        raws = [await connect(a, at.nid(2), kind, incarnation=7) for kind in (CONTROL, ConnType.BULK_IN)]
        raws.append(await connect(a, at.nid(2), ConnType.BULK_OUT, incarnation=7))
        doubt(a, at.nid(2))
        await asked(listener, 7, taken=False)
        await until(lambda: not a.dialer(at.nid(2)).busy)
        assert len(a.kinds(at.nid(2))) == len(raws)
        assert (await a.ended(a.put(at.nid(2), b"x"))).status is HealthStatus.OK
        assert not a.core.restarted


@pytest.mark.requirement("dyn-065")
@pytest.mark.parametrize("silent", [False, True])
async def test_a_doubted_connection_with_a_nid_that_cannot_be_called_ends(
    make: Make, at: Addresses, silent: bool
) -> None:
    a = make(at.nid(1))
    with swallowing(at.ip(2), a.params.accept_port) if silent else nullcontext():
        old = await connect(a, at.nid(2), CONTROL, incarnation=7)
        doubt(a, at.nid(2))
        assert await old.rest() == (b"", "EOF")
        await until(lambda: a.core.restarted)
        assert a.core.restarted == [Nid.parse(at.nid(2))]


@pytest.mark.requirement("dyn-065")
async def test_a_doubted_connection_that_is_heard_stays_though_the_nid_cannot_be_called(
    make: Make, at: Addresses
) -> None:
    a = make(at.nid(1))
    with swallowing(at.ip(2), a.params.accept_port):
        raw = await connect(a, at.nid(2), CONTROL, incarnation=7)
        doubt(a, at.nid(2))
        await raw.send(lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(2)), 6), b"I live"))
        await until(lambda: a.core.arrivals)
        await until(lambda: not a.dialer(at.nid(2)).busy)
        assert a.kinds(at.nid(2)) == [CONTROL]
        assert not a.core.restarted


@pytest.mark.requirement("dyn-065")
async def test_connections_of_a_device_that_is_down_end_with_the_former_life(
    make: Make, at: Addresses
) -> None:
    a = make(at.nid(1))
    old = await connect(a, at.nid(2), CONTROL, incarnation=7)
    a.peer(at.nid(2)).state.down = "planted by the test"
    assert not a.lnd.verify(a.ni, Nid.parse(at.nid(2)))
    assert await old.rest() == (b"", "EOF")


async def test_what_another_ni_has_seen_of_the_same_nid_needs_no_question(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), at.nid(3))
    one, other = a.nis.values()
    old = await connect(a, at.nid(2), CONTROL, to=one.nid, incarnation=7)
    new = await connect(a, at.nid(2), CONTROL, to=other.nid, incarnation=8)
    for ni in (one, other):
        a.lnd.verify(ni, Nid.parse(at.nid(2)))
    assert await old.rest() == (b"", "EOF")
    await new.silent()


async def test_a_new_life_ends_the_pause_of_another_ni(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    await a.ended(a.put(at.nid(2), b"x"))
    a.pair(at.nid(2)).pause = 50.0
    a.dialer(at.nid(2)).failed(errno.ETIMEDOUT, "planted by the test")
    make(at.nid(2))
    a.lnd.verify(a.ni, Nid.parse(at.nid(2)))
    assert (await a.ended(a.put(at.nid(2), b"x"))).status is HealthStatus.OK


async def test_who_is_called_in_vain_is_heard_when_it_calls(make: Make, at: Addresses) -> None:
    """Our NID is the higher one, and would win if its host had answered."""
    a = make(at.nid(5))
    with swallowing(at.ip(4), a.params.accept_port):
        msg = a.put(at.nid(4), b"x")
        await until(lambda: a.dialer(at.nid(4)).connecting)
        await turns()
        raw = await connect(a, at.nid(4), CONTROL, incarnation=8)
        assert raw.hello is not None and raw.hello.ctype == CONTROL
        assert (await raw.frame())[5] == b"x"
        assert (await a.ended(msg)).status is HealthStatus.OK
        assert not a.dialer(at.nid(4)).connecting

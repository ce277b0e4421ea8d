"""TLS handshakes that come all at once: they take turns, with one another and with everything else."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from lnd.conftest import Addresses
from lnd.kit import Side, dial, until
from ulnet.cli.pki import make_authority, make_node
from ulnet.lnd.tcp.secure import Security
from ulnet.lnd.tcp.secure_socket import SecureSocket
from ulnet.lnd.tcp.shakes import Shakes


async def test_addresses_take_turns() -> None:
    shakes = Shakes(asyncio.get_running_loop())
    done: list[str] = []

    def step(name: str) -> Callable[[], bool]:
        def taken() -> bool:
            done.append(name)
            return True

        return taken

    for at in range(1, 5):
        shakes.later("a", step(f"a{at}"))
    shakes.later("b", step("b1"))
    await asyncio.sleep(0)
    assert done == ["a1", "b1"]
    shakes.later("b", step("b2"))
    await asyncio.sleep(0)
    assert done == ["a1", "b1", "a2", "b2"]
    await asyncio.sleep(0)
    assert done[4:] == ["a3", "a4"]
    await asyncio.sleep(0)
    assert len(done) == 6 and not shakes._waiting


async def test_a_step_that_fails_keeps_nobody_waiting() -> None:
    loop = asyncio.get_running_loop()
    shakes, done, told = Shakes(loop), [], []
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))

    def fails() -> bool:
        raise ValueError

    def works() -> bool:
        done.append(1)
        return True

    for step in (fails, works, works, works):
        shakes.later("a", step)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(done) == 3 and len(told) == 1


async def test_those_that_were_dropped_take_no_turn_and_steps_may_add_others() -> None:
    shakes = Shakes(asyncio.get_running_loop())
    done: list[int] = []

    def gone() -> bool:
        return False

    def again() -> bool:
        done.append(len(done))
        if len(done) < 5:
            shakes.later("a", again)
        return True

    for _ in range(1000):
        shakes.later("b", gone)
    shakes.later("a", again)
    for turn in range(1, 4):
        await asyncio.sleep(0)
        assert len(done) == min(2 * turn, 5)
    assert not shakes._waiting


@pytest.mark.pure
async def test_hellos_that_come_together_are_answered_two_in_a_turn(
    make: Callable[..., Side],
    at: Addresses,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """4,080 of them kept everybody else waiting for three seconds."""
    make_authority(tmp_path / "ca", "a site")
    make_node(tmp_path / "ca", tmp_path / "node", [at.nid(1)])
    a = make(at.nid(1), tunables={"security": int(Security.REQUIRE)}, credentials=str(tmp_path / "node"))
    incoming, hello = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, hello).do_handshake()
    opening = hello.read()
    raws = [await dial(a, at.ip(2 + number % 3)) for number in range(30)]
    await until(lambda: len(a.lnd._shared.callers.half_open) == len(raws))
    turn = 0
    steps: Counter[int] = Counter()
    shake = SecureSocket.shake

    def counted(sock: SecureSocket) -> str:
        steps[turn] += 1
        return shake(sock)

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        asyncio.get_running_loop().call_soon(next_turn)

    monkeypatch.setattr(SecureSocket, "shake", counted)
    next_turn()
    for raw in raws:
        raw.sock.send(opening)
    await until(lambda: steps.total() == len(raws))
    assert max(steps.values()) <= 2 and len(steps) >= len(raws) // 2

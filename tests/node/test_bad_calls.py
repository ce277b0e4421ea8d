"""What a program gives a node by mistake: the same answer from both builds, and nothing is left behind.

Compiled code looks at the types of arguments before a call begins, pure Python where it uses them.
"""

from __future__ import annotations

import array
import errno
import mmap
from collections.abc import AsyncIterator, Awaitable, Callable
from inspect import isawaitable
from typing import Any

import pytest

from support.ports import free_port
from ulnet import Node
from ulnet.core.md import MANAGE_REMOTE, MAX_SIZE, OP_GET, OP_PUT, TRUNCATE
from ulnet.core.memory import Memory
from ulnet.core.status import LNetError
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import Nid

A = "127.0.9.1@tcp"
OPEN, FREE = 7, 8  # a portal with memory, and one without
TOO_BIG = 10**30
Call = Callable[..., "Awaitable[object] | object"]

# What is refused with one sentence, and words of that.
ADDRESSES: list[tuple[object, str]] = [
    (None, "NID 'None': give text"),
    (5, "NID '5': give text"),
    ([], "NID '[]': give text"),
    (bytes(Nid.parse(A)), "give text, such as '10.0.0.1@tcp', or a Nid"),
    ("", "NID '': '' is not an IP address"),
    ("x" * 500, "x…' is not an IP address"),
]
NUMBERS = {"offset": 32, "match_bits": 64, "hdr_data": 64}
UNSIGNED = [
    (name, value, f"{name} {value}: must be an unsigned {bits}-bit number")
    for name, bits in NUMBERS.items()
    for value in (-1, 1 << bits, TOO_BIG)
]
TIMES = [
    ("timeout", -1, "timeout -1: must be 0 to 1000000000 seconds"),
    ("timeout", 1000000001, "timeout 1000000001: must be"),
    ("timeout", float("nan"), "timeout nan: must be"),
    ("timeout", float("inf"), "timeout inf: must be"),
]
MEMORY: list[tuple[object, str]] = [
    (None, "memory of type NoneType: give bytes"),
    (5, "memory of type int: give bytes"),
    ("text", "memory of type str: give bytes"),
    ([bytearray(1), None], "memory of type NoneType: give bytes"),
    (memoryview(bytearray(6))[::2], "memory descriptor over a strided view"),
    ([bytearray(1)] * 257, "257 fragments: at most 256 are allowed"),
]
TOO_MUCH = [(bytearray((1 << 20) + 1), "1048577 bytes: one message carries at most 1048576")]
REFUSED: list[tuple[str, str, object, str]] = [
    *(("put", name, value, words) for name, value, words in (*UNSIGNED, *TIMES)),
    *(("put", "data", value, words) for value, words in (*MEMORY, *TOO_MUCH)),
    *(("get", name, value, words) for name, value, words in (*UNSIGNED, *TIMES) if name != "hdr_data"),
    *(("get", "buffer", value, words) for value, words in (*MEMORY, *TOO_MUCH)),
    *(
        (call, name, value, words)
        for call in ("ping", "discover", "primary_nid", "peer_discovered")
        for name, value, words in TIMES
    ),
    ("get", "buffer", b"abc", "GET into read-only memory"),
    *(
        (call, name, value, words)
        for call, name in [
            ("put", "target"), ("put", "source"), ("get", "target"), ("get", "source"), ("attach", "nid"),
            ("ping", "target"), ("discover", "target"), ("primary_nid", "nid"), ("peer_discovered", "nid"),
            ("explain", "target"), ("add_ni", "nid"), ("del_ni", "nid"), ("add_peer", "primary"),
        ]
        for value, words in ADDRESSES
        if (name, value) != ("source", None)
    ),
    ("attach", "portal", -1, "portal -1: portals are numbered 0..63"),
    ("attach", "portal", 64, "portal 64: portals are numbered 0..63"),
    *((call, "portal", 64, "portal 64: portals are numbered 0..63") for call in ("put", "get")),
    *(
        (call, "portal", value, "portals are numbered 0..63")
        for call in ("put", "get")
        for value in (-1, TOO_BIG)
    ),
    ("attach", "match_bits", 1 << 64, "match_bits 0x10000000000000000: must be an unsigned 64-bit number"),
    ("attach", "ignore_bits", -1, "ignore_bits -0x1: must be an unsigned 64-bit number"),
    ("attach", "pid", -1, "pid -1: must be an unsigned 32-bit number"),
    ("attach", "pid", 1 << 32, "pid 4294967296: must be an unsigned 32-bit number"),
    ("attach", "threshold", -2, "threshold -2: must be a number of operations, or -1"),
    ("attach", "options", 0, "needs OP_PUT or OP_GET or both"),
    ("attach", "options", 1 << 70, "needs OP_PUT or OP_GET or both"),
    ("attach", "buffer", b"abc", "OP_PUT on read-only memory"),
    *(("attach", "buffer", value, words) for value, words in MEMORY),
    ("attach", "handler", 5, "event handler of type int: give a function of one event, or None"),
    ("attach", "handler", 0, "event handler of type int: give"),
    ("name_peer", "nids", A, f"NIDs '{A}': give a list"),
    ("name_peer", "nids", Nid.parse(A), f"NIDs '{A}': give a list"),
    ("name_peer", "nids", [], "name one at least"),
    ("name_peer", "nids", [5], "NID '5': give text"),
    ("add_peer", "nids", "127.0.9.8@tcp", "NIDs '127.0.9.8@tcp': give a list"),
    ("add_bond", "net", 5, "net '5': give it as text"),
    ("add_bond", "net", "bad", "net 'bad' has no known type"),
    ("set_discovery", "mode", 3, "discovery 3: it is 0 (off), 1 (on) or 2 (verify)"),
    ("set_discovery", "mode", -1, "discovery -1: it is"),
]  # fmt: skip

# What is not of the type that the call asks for: a TypeError, wherever it is noticed.
OF_NO_USE: list[tuple[str, str, object]] = [
    *((call, name, value) for call in ("put", "get") for name in ("portal", "match_bits", "offset")
      for value in ("x", None, 1.5)),
    *(("put", "hdr_data", value) for value in ("x", None, 1.5)),
    *((call, name, "x") for call in ("put", "get") for name in ("timeout", "cpt")),
    *((call, "timeout", "x") for call in ("ping", "discover", "primary_nid", "peer_discovered")),
    *(("attach", "portal", value) for value in ("x", None, 1.5)),
    *(("attach", name, value) for name in ("match_bits", "ignore_bits", "pid", "threshold")
      for value in ("x", None)),
    ("attach", "options", None),
    ("set_lazy", "index", "x"),
    ("name_peer", "nids", None),
]  # fmt: skip

USUAL: dict[str, dict[str, object]] = {
    "put": {"target": A, "portal": OPEN, "match_bits": 1, "data": b"abc"},
    "get": {"target": A, "portal": OPEN, "match_bits": 1, "buffer": bytearray(3)},
    "attach": {"portal": FREE, "match_bits": 1, "buffer": bytearray(3)},
    **{call: {"target": A} for call in ("ping", "discover")},
    **{call: {"nid": A} for call in ("primary_nid", "peer_discovered")},
    "add_bond": {"slaves": ["*@tcp"]},
    "add_peer": {"primary": "127.0.9.9@tcp"},
}


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    """One with an NI, and memory that is open on a portal."""
    async with Node(tcp=TcpParams(accept="all", accept_port=free_port())) as node:
        node.add_ni(A)
        node.attach(
            OPEN, 1, bytearray(16), options=OP_PUT | OP_GET | TRUNCATE | MANAGE_REMOTE, handler=lambda _: None
        )
        yield node


async def answer(node: Node, call: str, name: str, value: object) -> object:
    """What the call says with that value in the place of a good one."""
    ask: Any = getattr(node.core.memory if call == "set_lazy" else node, call)
    found = ask(**{**USUAL.get(call, {}), name: value})
    return await found if isawaitable(found) else found


def left_behind(node: Node) -> tuple[object, ...]:
    """What a call that failed must not change."""
    core = node.core
    return (
        set(core.memory.mds), entries(core.memory), core.stats.msgs_alloc, core.memory.count_awaited(),
        list(core.nis), [peer.primary_nid for peer in core.peers], core.settings.discovery,
    )  # fmt: skip


def entries(memory: Memory) -> int:
    """How many match entries there are."""
    portals = [memory.portal(index) for index in (0, OPEN, FREE)]
    return sum(len(one.ignoring) + sum(map(len, one.exact.values())) for one in portals)


def label(value: object) -> str:
    return type(value).__name__ if isinstance(value, (list, memoryview, bytearray)) else repr(value)[:30]


@pytest.mark.parametrize(("call", "name", "value", "words"), REFUSED, ids=label)
async def test_what_cannot_be_is_refused_in_a_sentence(
    node: Node, call: str, name: str, value: object, words: str
) -> None:
    await answer(node, "put", "data", b"first")  # the peer is known now: the shortest way is open
    before = left_behind(node)
    with pytest.raises(LNetError) as told:
        await answer(node, call, name, value)
    assert told.value.errno == errno.EINVAL
    assert words in str(told.value)
    assert left_behind(node) == before
    assert await answer(node, "put", "data", b"again") == 5


@pytest.mark.parametrize(("call", "name", "value"), OF_NO_USE, ids=label)
async def test_values_of_other_types_leave_nothing_behind(
    node: Node, call: str, name: str, value: object
) -> None:
    await answer(node, "put", "data", b"first")
    before = left_behind(node)
    with pytest.raises(TypeError):
        await answer(node, call, name, value)
    assert left_behind(node) == before
    assert await answer(node, "put", "data", b"again") == 5


async def test_a_size_beyond_the_memory_is_refused(node: Node) -> None:
    before = left_behind(node)
    for size in (-1, 4, TOO_BIG):
        with pytest.raises(LNetError, match=f"max_size {size} of a memory descriptor: must lie in 0..3"):
            node.attach(FREE, 1, bytearray(3), options=OP_PUT | MAX_SIZE, max_size=size)
    assert left_behind(node) == before


@pytest.mark.parametrize("name", ["balance", "recovery"])
@pytest.mark.parametrize("word", ["", "x", 5, None, ["expected"]], ids=label)
def test_unknown_words_are_refused_before_the_node_is_made(name: str, word: Any) -> None:
    with pytest.raises(LNetError, match=f"{name} .*: it is '.*' or 'documents'"):
        Node(**{name: word})


async def test_the_largest_numbers_are_carried(node: Node) -> None:
    """Beyond 62 bits compiled code keeps an int in another way."""
    for bits in (1 << 62, 1 << 63, (1 << 64) - 1):
        opened = node.attach(FREE, bits, bytearray(3), threshold=1)
        assert await node.put(A, FREE, bits, b"abc", hdr_data=bits) == 3
        event = await opened.next_event()
        assert (event.match_bits, event.hdr_data) == (bits, bits)


@pytest.mark.parametrize("yes", [True, 1, "yes"])
@pytest.mark.parametrize("no", [False, 0, "", None])
async def test_what_stands_for_true_or_false_serves(node: Node, yes: Any, no: Any) -> None:
    """As anywhere in Python."""
    assert await node.put(A, OPEN, 1, b"abc", ack=yes) == 3
    assert await node.put(A, OPEN, 1, b"abc", ack=no) == 3
    assert await node.primary_nid(A, lock=no) == Nid.parse(A)
    await node.discover(A, force=yes)
    assert node.add_peer("127.0.9.7@tcp", multi_rail=yes).multi_rail
    assert not node.add_peer("127.0.9.8@tcp", multi_rail=no).multi_rail


async def test_whatever_lends_its_memory_is_sent_and_filled(node: Node) -> None:
    with mmap.mmap(-1, 4096) as pages:
        pages[:4] = b"abcd"
        words = array.array("I", [1, 2])
        for data in (bytearray(b"abc"), memoryview(b"abc"), words, pages, (b"a", b"b"), [words, b"c"], []):
            expected = b"".join(map(bytes, data)) if isinstance(data, (list, tuple)) else bytes(data)
            opened = node.attach(FREE, 1, memory := bytearray(4096), threshold=1)
            assert await node.put(A, FREE, 1, data) == len(expected)  # type: ignore[arg-type]
            assert memory[: len(expected)] == expected
            await opened.next_event()
        node.attach(FREE, 2, b"12345678", threshold=1, options=OP_GET)
        assert await node.get(A, FREE, 2, words) == 8  # type: ignore[arg-type]
        assert words.tobytes() == b"12345678"
        del data

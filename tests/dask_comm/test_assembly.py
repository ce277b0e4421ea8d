"""A message whose first frame begins to come before it is asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ulnet.dask.assembly import EAGER, EAGER_PIECE, Assembly
from ulnet.rpc import RpcError

pytestmark = pytest.mark.requirement("ULP")


@given(st.data(), st.integers(1, EAGER), st.integers(0, 10))
def test_pieces_come_in_any_order_before_and_after_what_announces_them(
    data: st.DataObject, eager: int, more: int
) -> None:
    frame = (bytes(range(251)) * (1 + (eager + more) // 251))[: eager + more]
    memory = memoryview(bytearray(eager + more))
    memory[eager:] = frame[eager:]
    assembly = Assembly()
    assembly.sizes = (len(frame),)
    offsets = list(range(0, eager, EAGER_PIECE))
    announced, pulled = -1, -2
    steps = data.draw(st.permutations([*offsets, announced, pulled]))
    if steps.index(announced) > steps.index(pulled):
        steps.remove(announced)
        steps.insert(steps.index(pulled), announced)
    for step in steps:
        assert not assembly.whole
        if step == announced:
            assembly.expect_eager(0, memory, eager)
        elif step == pulled:
            assembly.pulled(0, memory)
        else:
            assembly.add_eager(step, memoryview(frame)[step : min(step + EAGER_PIECE, eager)])
    assert assembly.whole
    assert bytes(assembly.frames[0]) == frame


@pytest.mark.parametrize("early", [False, True])
def test_a_piece_that_comes_twice_is_refused(early: bool) -> None:
    assembly = Assembly()
    if not early:
        assembly.expect_eager(0, memoryview(bytearray(100)), 100)
    assembly.add_eager(0, memoryview(bytes(50)))
    with pytest.raises(RpcError, match="50 bytes at 0 are no piece"):
        assembly.add_eager(0, memoryview(bytes(50)))


def test_an_early_piece_beyond_what_is_announced_is_refused() -> None:
    assembly = Assembly()
    assembly.add_eager(0, memoryview(bytes(101)))
    with pytest.raises(RpcError, match="101 bytes at 0 are beyond the 100 that are to be sent eagerly"):
        assembly.expect_eager(0, memoryview(bytearray(100)), 100)
    assert not assembly.announced  # what comes then is counted: the memory of the frame is not kept
    assert assembly.early == 101

"""Values for property tests of the codecs."""

from __future__ import annotations

from hypothesis import strategies as st

from ulnet.nid import ANY_NID, Net, NetType, Nid
from ulnet.wire.errors import ByteOrder

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
byteorders: st.SearchStrategy[ByteOrder] = st.sampled_from(("little", "big"))

_kinds = [kind for kind in NetType if kind != NetType.LO]
_nets = st.builds(Net.of, st.sampled_from(_kinds), st.integers(0, 0xFFFF))
small_nids = st.one_of(st.builds(Nid.of, _nets, st.binary(min_size=4, max_size=4)), st.just(ANY_NID))
named_small_nids = small_nids.filter(lambda nid: not nid.is_any)
large_nids = st.builds(Nid.of, _nets, st.binary(min_size=16, max_size=16))
nids = st.one_of(small_nids, large_nids)
named_nids = st.one_of(named_small_nids, large_nids)

"""Recorded kernel nodes' pings and pushes drive discovery to the end state that the kernels reached.

One end of a recorded conversation is a node of ours, the other says what the kernel said, in its order. Ours
must say what the kernel at that end said: the same kinds of messages with the same ping info, and no others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ulnet.capture.decoder import Decoder
from ulnet.nid import LNET_PID, Nid
from ulnet.sim import SimNode, Simulation
from ulnet.sim.discovering import discovery_in_order
from ulnet.sim.foreign import ForeignNode, Heard
from ulnet.wire.lnet import PING_MATCH_BITS, Header, MsgType
from ulnet.wire.ping import NiEntry, NiStatus, PingInfo

VECTORS = Path(__file__).resolve().parents[1] / "data" / "vectors"
A, B = ("192.168.110.11@tcp", "192.168.111.11@tcp"), ("192.168.110.12@tcp", "192.168.111.12@tcp")
C = ("192.168.110.13@tcp", "192.168.111.13@tcp")
A6, B6 = ("fd00:110::11@tcp",), ("fd00:110::12@tcp", "fd00:111::12@tcp")


@dataclass(frozen=True)
class Said:
    """One recorded message: who to whom, and the ping info in it."""

    kind: MsgType
    src: Nid
    dst: Nid
    info: PingInfo | None


def conversation(name: str) -> list[Said]:
    """The messages of a capture, without the pings of `lnetctl ping`, which have buffers of other sizes."""
    said = []
    foreign_ping = False
    with (VECTORS / f"{name}.pcap").open("rb") as file:
        for event in Decoder().events(file):
            facts: dict[str, Any] = event.saying.facts
            if event.saying.kind != "message":
                continue
            kind = MsgType[str(facts["type"])]
            if kind is MsgType.GET:
                foreign_ping = "up to 272 B" not in event.saying.text
            if foreign_ping and kind in (MsgType.GET, MsgType.REPLY):
                continue
            src, dst = Nid.parse(facts["src_nid"]), Nid.parse(facts["dest_nid"])
            said.append(Said(kind, src, dst, _info(facts.get("ping_info"))))
    return said


def _info(facts: dict[str, Any] | None) -> PingInfo | None:
    if facts is None:
        return None
    status = {"up": NiStatus.UP, "down": NiStatus.DOWN}
    entries = [NiEntry(Nid.parse(one["nid"]), status[one["status"]]) for one in facts["nis"]]
    return PingInfo(int(facts["features_bits"], 16), LNET_PID, facts["sequence"], entries)


class Kernel:
    """The other end: says what was recorded, and keeps what ours says until it is compared."""

    def __init__(self, sim: Simulation, nids: tuple[str, ...]) -> None:
        self.sim = sim
        self.node: ForeignNode = sim.foreign("kernel", *nids)
        self.compared = 0
        self.asked: Heard | None = None  # what the next answer is to
        self.asked_before: Heard | None = None
        self.told: PingInfo | None = None  # of itself, last

    def say(self, one: Said) -> None:
        self.told = one.info or self.told
        if one.kind in (MsgType.REPLY, MsgType.ACK):
            self._answer(one)
            return
        payload = one.info.pack() if one.info is not None else b""
        hdr = Header(int(one.kind), one.dst, one.src, LNET_PID, LNET_PID, len(payload), wmd=b"\x07" * 16)
        hdr.match_bits = PING_MATCH_BITS
        hdr.length = 272 if one.kind is MsgType.GET else 0
        self.node.send(one.src, one.dst, hdr, payload)

    def _answer(self, one: Said) -> None:
        asked = self.asked
        assert asked is not None
        payload = one.info.pack() if one.info is not None else b""
        hdr = Header(int(one.kind), asked.hdr.src_nid, asked.at, LNET_PID, LNET_PID, len(payload))
        hdr.wmd = asked.hdr.wmd
        hdr.length = len(asked.payload)
        self.node.send(asked.at, asked.hdr.src_nid, hdr, payload)

    def answer_more(self, heard: Heard) -> None:
        """Answer a ping or a push that was not recorded, the ping with what it told last."""
        kind = MsgType.REPLY if MsgType(heard.hdr.type) is MsgType.GET else MsgType.ACK
        assert heard.hdr.type in (MsgType.GET, MsgType.PUT)
        self.say(Said(kind, heard.at, heard.source, self.told if kind is MsgType.REPLY else None))
        self.asked = self.asked_before

    def hear(self) -> Heard:
        """The next message of ours."""
        self.sim.run_until(lambda: len(self.node.heard) > self.compared, 5.0)
        self.compared += 1
        heard = self.node.heard[self.compared - 1]
        if heard.hdr.type in (MsgType.GET, MsgType.PUT):
            self.asked, self.asked_before = heard, self.asked
        return heard


def make_true(ours: SimNode, info: PingInfo) -> None:
    """Add and remove NIs until ours has those of the info that it is to tell next."""
    wanted = [entry.nid for entry in info.entries]
    for nid in [nid for nid in ours.nids if nid not in wanted]:
        ours.del_ni(nid)
    for nid in wanted:
        if nid not in ours.nids:
            ours.add_ni(nid)


def without_sequence(info: PingInfo) -> PingInfo:
    return PingInfo(info.features, info.pid, 0, info.entries)


def replay(
    name: str, us: tuple[str, ...], them: tuple[str, ...], before: PingInfo | None = None
) -> tuple[SimNode, list[Said]]:
    sim = Simulation(name, thorough=True)
    sim.properties.append(discovery_in_order)
    said = conversation(name)
    ours = sim.node("ours")
    first = next((one.info for one in said if one.info is not None and str(one.src) in us), None)
    for nid in [entry.nid for entry in first.entries] if first is not None and before is None else us[:1]:
        ours.add_ni(nid)
    kernel = Kernel(sim, them)
    if before is not None:  # they knew each other when the recording began
        ours.core.discover(before.entries[0].nid, done=lambda error, peer: None)
        for kind in (MsgType.REPLY, MsgType.ACK):
            heard = kernel.hear()
            kernel.say(Said(kind, heard.at, heard.source, before if kind is MsgType.REPLY else None))
        sim.run_until_quiet()
    for one in said:
        if str(one.src) in them:
            kernel.say(one)
            continue
        if one.kind is MsgType.GET:
            ours.core.discover(one.dst, done=lambda error, peer: None)
        elif one.kind is MsgType.PUT and one.info is not None:
            make_true(ours, one.info)
        heard = kernel.hear()
        while heard.hdr.type != one.kind:  # a NID that is claimed anew is asked, which kernel nodes do not
            kernel.answer_more(heard)
            heard = kernel.hear()
        assert MsgType(heard.hdr.type) is one.kind
        if one.kind in (MsgType.REPLY, MsgType.ACK):
            assert (heard.at, heard.hdr.src_nid) == (one.dst, one.src)
        if one.info is not None:
            told = PingInfo.unpack(heard.payload)
            assert without_sequence(told).pack() == without_sequence(one.info).pack()
    sim.run_until_quiet()
    while len(kernel.node.heard) > kernel.compared:  # nothing else than such questions
        kernel.answer_more(kernel.hear())
        sim.run_until_quiet()
    return ours, said


@pytest.mark.requirement("dyn-005", "dyn-020", "dyn-025", "dyn-045", "dyn-050", "HLD-fsm")
@pytest.mark.parametrize(
    ("name", "us", "them"),
    [
        ("c_discover_push_1rail", A, B),
        ("c_discover_push_1rail", B, A),
        ("c2_discover_push_2rail", A, B),
        ("c2_discover_push_2rail", B, A),
        ("m_b2_15_vmC_to_master_vmA", A, C),
        ("m_b2_15_vmC_to_master_vmA", C, A),
        ("j_large_nid_ipv6_hello_v4", A6, B6),
        ("j_large_nid_ipv6_hello_v4", B6, A6),
    ],
)
def test_kernels_and_ours_come_to_the_same_end(name: str, us: tuple[str, ...], them: tuple[str, ...]) -> None:
    ours, said = replay(name, us, them)
    last = [one.info for one in said if one.info is not None and str(one.src) in them][-1]
    (peer,) = [peer for peer in ours.core.peers if not peer.primary_nid.is_lo]
    assert peer.flags == 273  # as `lnetctl peer show -v 4` of the kernels tells
    assert set(peer.members) == {entry.nid for entry in last.entries}
    assert peer.primary_nid == last.primary
    assert peer.remote_sequence == last.sequence
    assert peer.pushed_sequence == ours.core.info.sequence


@pytest.mark.requirement("dyn-045", "dyn-050")
def test_a_kernels_nis_come_and_go() -> None:
    before = PingInfo(0x1E, LNET_PID, 2, [NiEntry(Nid.parse(B[0]))])
    ours, _ = replay("d_ni_add_del_push", A, B, before)
    peer = ours.core.peers.find(Nid.parse(B[1]))
    assert peer is not None
    assert (peer.flags, peer.remote_sequence) == (273, 5)
    assert [str(nid) for nid in peer.nids()] == list(B)
    assert [str(nid) for nid in ours.nids] == list(A)

"""A hand-made o2iblnd peer on the simulator's RDMA devices: speaks bytes, and keeps what it hears."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from ulnet.lnd.o2ib.verbs import CmEvent, DeviceEvent, Request, Send, Shape, Slot
from ulnet.nid import Nid
from ulnet.sim import SimNode, Simulation
from ulnet.sim.cables import Host
from ulnet.sim.verbs import SimPair, SimRegion, SimRequest, SimVerbs
from ulnet.wire.lnet import PING_PORTAL, Header, MsgType
from ulnet.wire.o2ib import ConnParams, O2ibMessage, O2ibType, RdmaTarget, Reason, Reject
from ulnet.wire.ping import Feature, NiEntry, NiStatus, PingInfo

__all__ = ["PARAMS", "SHAPE", "Stranger", "node_and_stranger"]

SHAPE = Shape(64, 600, 64, 5, 6, -1)
PARAMS = ConnParams(8, 257, 4096)
INCARNATION = 77


class Stranger:
    """One NI that is no node of ours; `answers` are what calls get, in turn: a refusal, or parameters."""

    def __init__(self, sim: Simulation, nid: str) -> None:
        self.sim = sim
        self.nid = Nid.parse(nid)
        self.host = Host(sim.fabric, f"stranger {nid}")
        sim.add_port(self.host, self.nid)
        self.device = SimVerbs(self.host).open(cast(Any, SimpleNamespace(nid=self.nid)), 987, self)
        self.incarnation = INCARNATION
        self.calls: list[O2ibMessage] = []  # CONNREQs that came
        self.heard: list[O2ibMessage] = []
        self.raw: list[bytes] = []
        self.events: list[tuple[CmEvent, int, bytes]] = []
        self.answers: list[Reason | Reject | ConnParams | bytes | None] = []
        self.sent_tokens = 0
        self.failed = ""
        self.pair: SimPair | None = None
        self.recycles = True
        self.answers_pings = True
        self.version = 0x12
        self.there = (Nid.parse("0.0.0.0@o2ib"), 0)  # NID and incarnation of the other side

    # Port ---------------------------------------------------------------------------------------------

    def requested(self, request: Request) -> None:
        """Answer a call."""
        assert isinstance(request, SimRequest)
        asked = O2ibMessage.unpack(request.private)
        self.calls.append(asked)
        self.raw.append(request.private)
        answer = self.answers.pop(0) if self.answers else asked.params
        self.there = asked.src_nid, asked.src_incarnation
        self.version = asked.version
        if answer is None:
            return  # and leave it without an answer
        if isinstance(answer, Reason):
            answer = Reject(asked.version, answer, self.incarnation, PARAMS)
        if isinstance(answer, Reject):
            request.reject(answer.pack())
            return
        if isinstance(answer, ConnParams):
            answer = self.message(O2ibType.CONNACK, params=answer).pack()
        self.pair = request.accept(self, answer, SHAPE)

    def device_event(self, event: DeviceEvent, words: str) -> None:
        """It does not care."""

    def managed(self, event: CmEvent, status: int, private: bytes) -> None:
        """Keep it."""
        self.events.append((event, status, private))

    def received(self, slot: Slot) -> None:
        """Keep it."""
        raw = bytes(slot.buf[: slot.size])
        message = O2ibMessage.unpack(raw)
        if self.recycles and self.pair is not None and self.pair.open:
            self.pair.recycle(slot)
        if not self._answers_ping(message):
            self.raw.append(raw)
            self.heard.append(message)

    def _answers_ping(self, message: O2ibMessage) -> bool:
        """Tell who asks that it is of no Multi-Rail node."""
        hdr = message.header
        if not self.answers_pings or hdr is None or (hdr.type, hdr.portal) != (MsgType.GET, PING_PORTAL):
            return False
        info = PingInfo(Feature.NI_STATUS, 12345, 1, [NiEntry(hdr.dest_nid, NiStatus.UP)]).pack()
        reply = Header(MsgType.REPLY, hdr.src_nid, hdr.dest_nid, 12345, 12345, len(info), hdr.wmd)
        self.say(O2ibType.IMMEDIATE, header=reply, payload=info, credits=1)
        return True

    def sent(self, tokens: list[object]) -> None:
        """Count them."""
        self.sent_tokens += len(tokens)

    def broken(self, status: str, here: bool = False) -> None:
        """Keep it."""
        self.failed = status
        if self.pair is not None:
            self.pair.close()

    # What it says -------------------------------------------------------------------------------------

    def message(self, kind: O2ibType, **fields: Any) -> O2ibMessage:
        """A message to the other side."""
        nid, incarnation = self.there
        plain = O2ibMessage(kind, self.version, 0, 0, self.nid, self.incarnation, nid, incarnation, "little")
        return replace(plain, **fields)

    def call(self, node: SimNode, private: bytes = b"", **fields: Any) -> None:
        """Call a node, and wait for what becomes of that."""
        self.there = node.nid, 0
        if not private:
            private = self.message(O2ibType.CONNREQ, **({"params": PARAMS} | fields)).pack()
        self.events.clear()
        self.pair = self.device.connect(node.nid.ip, self, private, SHAPE)
        self.sim.run_until(lambda: bool(self.events))
        if self.events[0][0] is CmEvent.ESTABLISHED:
            ack = O2ibMessage.unpack(self.events[0][2])
            self.there = ack.src_nid, ack.src_incarnation
            self.version = ack.version

    @property
    def reason(self) -> Reason:
        """Why its call was refused."""
        event, _, private = self.events[0]
        assert event is CmEvent.REJECTED, self.events
        return Reason(Reject.unpack(private).reason)

    @property
    def hung_up(self) -> bool:
        """Whether the other side has closed the connection."""
        return any(event is CmEvent.DISCONNECTED for event, *_ in self.events)

    def say(self, kind: O2ibType, **fields: Any) -> None:
        """Send a message."""
        self.say_bytes(self.message(kind, **fields).pack())

    def say_bytes(self, raw: bytes) -> None:
        """Send these bytes as one message."""
        assert self.pair is not None
        self.pair.post([Send((raw,), object())])

    def say_lnet(self, kind: O2ibType, hdr: Header, **fields: Any) -> None:
        """Send a message with an LNet header."""
        self.say(kind, header=hdr, **fields)

    def memory(self, size: int) -> tuple[bytearray, SimRegion]:
        """Memory that the other side may write to."""
        data = bytearray(size)
        assert self.pair is not None
        return data, self.pair.register(memoryview(data), True)

    def target(self, region: SimRegion, *sizes: int) -> RdmaTarget:
        """Its descriptor, in fragments of these sizes."""
        fragments, at = [], region.address
        for size in sizes or (region.view.nbytes,):
            fragments.append((size, at))
            at += size
        return RdmaTarget(region.key, tuple(fragments))

    def last(self, kind: O2ibType) -> O2ibMessage:
        """The last message of that kind that came."""
        return [message for message in self.heard if message.type is kind][-1]

    def wait_for(self, kind: O2ibType) -> O2ibMessage:
        """The next message of that kind."""
        before = self.count(kind)
        self.sim.run_until(lambda: self.count(kind) > before)
        return self.last(kind)

    def count(self, kind: O2ibType) -> int:
        """How many messages of that kind came."""
        return sum(message.type is kind for message in self.heard)


def node_and_stranger(seed: int = 1, nid: str = "10.0.0.9@o2ib") -> tuple[Simulation, SimNode, Stranger]:
    """A node of ours at 10.0.0.1@o2ib without discovery, and a stranger."""
    sim = Simulation(seed, thorough=True)
    node = sim.node("a", "10.0.0.1@o2ib")
    assert not node.configure("global: {discovery: 0, retry_count: 0}")
    return sim, node, Stranger(sim, nid)

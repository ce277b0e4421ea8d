"""Whatever users, peers, administrators and handlers do in any order: nothing is lost or told twice."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from support.fabric import Fabric
from support.stream import NO_PAYLOAD
from ulnet.control.instance import LNet
from ulnet.core.event import Event, EventKind
from ulnet.core.md import Md, MdOption
from ulnet.core.portal import MatchEntry
from ulnet.core.status import LNetError
from ulnet.core.tunables import NetTunables
from ulnet.nid import ANY_NID, LO_NID, Nid
from ulnet.wire.lnet import PING_MATCH_BITS, Header, MsgType
from ulnet.wire.ping import NiEntry, PingInfo

# Each node has up to two NIs.
NIDS = [
    (Nid.parse("10.0.0.1@tcp"), Nid.parse("10.1.0.1@tcp1")),
    (Nid.parse("10.0.0.2@tcp"), Nid.parse("10.1.0.2@tcp1")),
    (Nid.parse("10.0.0.3@tcp"), Nid.parse("10.0.0.33@tcp")),
]
EVERY_NID = [LO_NID, *(nid for pair in NIDS for nid in pair), Nid.parse("10.0.0.9@tcp")]
OPTIONS = [
    MdOption.OP_PUT | MdOption.OP_GET | MdOption.TRUNCATE,
    MdOption.OP_PUT | MdOption.MANAGE_REMOTE | MdOption.ACK_DISABLE,
    MdOption.OP_PUT | MdOption.OP_GET | MdOption.MANAGE_REMOTE | MdOption.TRUNCATE,
]

node = st.integers(0, 2)
nid = st.sampled_from(EVERY_NID)
portal = st.sampled_from([5, 5, 5, 6, 6, 64])
size = st.sampled_from([0, 0, 1, 8, 40])
bits = st.sampled_from([0, 0, 0, 1])
which = st.integers(0, 30)
threshold = st.sampled_from([1, 2, 2, 5, -1])


def call(name, *arguments):
    return st.tuples(st.just(name), *arguments)


put = call("put", node, nid, portal, bits, size, st.booleans(), threshold)
get = call("get", node, nid, portal, bits, size, threshold)
attach = call(
    "attach",
    node,
    portal,
    bits,
    bits,
    size,
    st.sampled_from(OPTIONS),
    st.sampled_from([1, 2, -1]),
    st.booleans(),
)
unlink = call("unlink", which)
step = call("step", st.integers(1, 5))
traffic = put | get | attach | unlink | call("me_unlink", which) | call("again", which, nid, st.booleans())
upheaval = st.one_of(
    call("lazy", node, portal, st.booleans()),
    call("lose", st.integers(1, 3)),
    call("break"),
    call("wait", st.sampled_from([0.5, 3.0, 200.0])),
    call("del_ni", node, st.integers(0, 1)),
    call("add_ni", node, st.integers(0, 1)),
    call("peer_add", node, nid, st.lists(nid, max_size=2), st.booleans()),
    call("peer_del", node, nid, st.lists(nid, max_size=1)),
    call("push", node, nid, st.lists(nid, min_size=1, max_size=3)),
    call("forge", which, node, nid, st.sampled_from([MsgType.ACK, MsgType.REPLY])),
)
end = call("shutdown", node)
action = traffic | step | upheaval
script = st.lists(st.tuples(traffic | action, st.none() | traffic | action | end), min_size=10, max_size=60)


class World:
    """Three nodes and all that was asked of them; `told` keeps the events of every MD."""

    def __init__(self, credits: int, slow: bool) -> None:
        self.fabric = Fabric(slow=slow)
        self.tunables = NetTunables(peer_credits=1, credits=credits)
        self.cores = [
            self.fabric.node(*map(str, pair[: 1 + (index < 2)]), tunables=self.tunables)
            for index, pair in enumerate(NIDS)
        ]
        for core in self.cores:
            core.memory.set_lazy(6)
        self.mds: list[tuple[LNet, Md]] = []
        self.mes: list[tuple[LNet, MatchEntry]] = []
        self.told: dict[Md, list[Event]] = {}
        self.depth = 0

    def do(self, action, reaction=None):
        """Run one action; what an MD made by it hears first sets off the reaction."""
        try:
            getattr(self, action[0].replace("break", "break_one"))(*action[1:], reaction)
        except LNetError:
            pass

    def handler(self, reaction):
        events = []

        def handle(event):
            events.append(event)
            if reaction is not None and len(events) == 1 and self.depth < 3:
                self.depth += 1
                self.do(reaction)
                self.depth -= 1

        handle.events = events
        return handle

    def made(self, core, md, handle):
        self.mds.append((core, md))
        self.told[md] = handle.events

    # Users

    def put(self, index, target, portal, bits, size, ack, threshold, reaction):
        core, handle = self.cores[index], self.handler(reaction)
        md = core.memory.md_bind(bytearray(size), handle, threshold=threshold, timeout=2.0)
        self.made(core, md, handle)
        core.put(md, target, portal, bits, ack=ack)

    def get(self, index, target, portal, bits, size, threshold, reaction):
        core, handle = self.cores[index], self.handler(reaction)
        md = core.memory.md_bind(bytearray(size), handle, threshold=threshold)
        self.made(core, md, handle)
        core.get(md, target, portal, bits)

    def again(self, which, target, ack, reaction):
        if which < len(self.mds):
            core, md = self.mds[which]
            core.put(md, target, 5, 0, ack=ack)

    def attach(self, index, portal, bits, ignore, size, options, threshold, unlink, reaction):
        core, handle = self.cores[index], self.handler(reaction)
        me = core.memory.me_attach(portal, match_bits=bits, ignore_bits=ignore, nid=ANY_NID, unlink=unlink)
        self.mes.append((core, me))
        buffer = bytearray(size)
        md = core.memory.md_attach(me, buffer, handle, options=options, threshold=threshold)
        self.made(core, md, handle)

    def unlink(self, which, reaction):
        if which < len(self.mds):
            core, md = self.mds[which]
            core.memory.md_unlink(md)

    def me_unlink(self, which, reaction):
        if which < len(self.mes):
            core, me = self.mes[which]
            core.memory.me_unlink(me)

    def lazy(self, index, portal, lazy, reaction):
        self.cores[index].memory.set_lazy(portal, lazy)

    # The wire and time

    def step(self, count, reaction):
        for _ in range(count):
            self.fabric.step()

    def lose(self, count, reaction):
        for _ in range(count):
            self.fabric.step(lambda msg: True)

    def break_one(self, reaction):
        for held in self.fabric.delayed[:1]:
            self.fabric.break_delivery(held)
        for arriving in self.fabric.arriving[:1]:
            self.fabric.arrive(arriving, broken=True)

    def wait(self, seconds, reaction):
        self.fabric.clock.now += seconds
        for core in self.cores:
            core.tick(self.fabric.clock.now)

    # Administrators

    def del_ni(self, index, number, reaction):
        self.cores[index].del_ni(NIDS[index][number])

    def add_ni(self, index, number, reaction):
        nid = NIDS[index][number]
        self.cores[index].add_ni(nid.net, nid, tunables=self.tunables)

    def peer_add(self, index, primary, nids, multi_rail, reaction):
        self.cores[index].peers.add(primary, nids, multi_rail)

    def peer_del(self, index, primary, nids, reaction):
        self.cores[index].peers.delete(primary, nids)

    def shutdown(self, index, reaction):
        self.cores[index].shutdown()

    # Peers

    def push(self, index, target, nids, reaction):
        core = self.cores[index]
        info = PingInfo(0x1E, 12345, 9, [NiEntry(nid) for nid in nids])
        core.put(core.memory.md_bind(info.pack(), None, threshold=1), target, 0, PING_MATCH_BITS, ack=False)

    def forge(self, which, index, source, kind, reaction):
        if which >= len(self.mds) or not self.mds[which][1].handle:
            return
        core, md = self.mds[which]
        for own, ni in list(core.nis.items()):
            if not own.is_lo:
                hdr = Header(int(kind), own, source, wmd=md.wmd)
                assert core.receiver(ni, source).begin(hdr, NO_PAYLOAD) == 0

    # The end

    def settle(self):
        """Nothing is asked for any more: all must come to its end."""
        self.depth = 3  # no further reactions
        for core in self.cores:
            for portal in (5, 6, 63):
                core.memory.set_lazy(portal, False)
        for core, md in self.mds:
            core.memory.md_unlink(md)
        self.fabric.run()
        while any(core.health.resender.pausing or core._sender.credits._patrol for core in self.cores):
            self.fabric.clock.now += 0.1
            self.fabric.run()
        self.check()

    def check(self):
        self.fabric.assert_conserved()
        assert not self.fabric.complaints
        assert not self.fabric.protocol_errors
        for events in self.told.values():
            assert [event.unlinked for event in events] == [False] * (len(events) - 1) + [True]
            assert all(event.status <= 0 for event in events)
        for core in self.cores:
            assert core.memory.count_awaited() == 0
            assert core.health.recovery.busy or core.state.deadlines.next_deadline() is None
            assert core.next_deadline() is None or core.health.recovery.busy
            assert core.state.answers == 0
            for portal in core.memory.portals:
                assert portal is None or not portal.delayed
            left = [md for md in core.memory.mds.values() if md in self.told]
            assert not left


# Its owner hears that no answer came, and meanwhile the request is over, too.
ENDS_IN_A_HANDLER = [
    (("put", 0, LO_NID, 5, 0, 0, False, 1), None),
    (("put", 0, LO_NID, 5, 0, 0, False, 1), ("wait", 200.0)),
    (("get", 0, NIDS[0][0], 5, 0, 0, 1), ("step", 1)),
    (("step", 1), None),
    (("lose", 2), None),
    (("unlink", 3), None),
]


@given(credits=st.integers(1, 3), slow=st.booleans(), abrupt=st.booleans(), script=script)
@example(credits=1, slow=False, abrupt=False, script=ENDS_IN_A_HANDLER)
def test_every_operation_ends_once_and_all_is_given_back(credits, slow, abrupt, script):
    world = World(credits, slow)
    for action, reaction in script:
        world.do(action, reaction)
    if not abrupt:
        world.settle()
    for core in world.cores:
        core.shutdown()
    world.fabric.run()
    world.check()
    for core in world.cores:
        assert not core.nis
        assert not core.memory.mds


def test_the_script_reaches_what_it_should():
    world = World(2, slow=True)
    for step in (
        ("attach", 1, 5, 0, 0, 40, OPTIONS[0], -1, True),
        ("put", 0, NIDS[1][0], 5, 0, 8, True, 2),
        ("get", 0, NIDS[1][0], 5, 0, 8, 2),
        ("step", 20),
    ):
        world.do(step)
    kinds = {event.kind for events in world.told.values() for event in events}
    assert kinds == {EventKind.PUT, EventKind.GET, EventKind.SEND, EventKind.ACK, EventKind.REPLY}
    world.settle()

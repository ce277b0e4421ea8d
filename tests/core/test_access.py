"""Who may connect, ping, push, and reach which portals: by NID, and by the interface it comes by."""

from __future__ import annotations

import errno

import pytest

from core.test_core_regressions import arrive, attach
from core.test_foreign_answers import Forged
from core.test_kept_matches import PAYLOAD, Line
from support.comparisons import Comparisons
from support.fabric import Fabric, Recorder
from ulnet.control.access import MOST, access_of, with_rules, without
from ulnet.control.instance import LNet
from ulnet.core.access import DENIED, EVERYBODY, Access
from ulnet.core.guard.identity import tag_of
from ulnet.core.lnd import Lnd
from ulnet.core.md import TRUNCATE, MdOption
from ulnet.core.ni import NI, LocalNet, Place
from ulnet.core.status import LNetError
from ulnet.core.tunables import NetTunables
from ulnet.lnd.lo import LoLnd
from ulnet.nid import Net, Nid
from ulnet.wire.lnet import PING_MATCH_BITS, PING_PORTAL, Header, MsgType

A, B, C = (Nid.parse(f"10.0.0.{n}@tcp") for n in (1, 2, 3))
TARGET = MdOption.OP_PUT | MdOption.OP_GET | MdOption.MANAGE_REMOTE | MdOption.TRUNCATE


def lnd() -> Lnd:
    core = Fabric().node(str(A))
    return LoLnd(core, core.defer)


def at(interface: str | None, *also: str) -> NI:
    """Our NI on that interface, and on others of a bonded net."""
    local = LocalNet(A.net, lnd(), NetTunables())
    return NI(local, A, interface=interface, cpts=(0,), also=tuple(Place(A, one) for one in also))


@pytest.mark.parametrize(
    ("allow", "deny", "may"),
    [
        ([], [], {2, 3}),
        (["10.0.0.2@tcp"], [], {2}),
        (["10.0.0.2@tcp", "10.0.0.[3-9]@tcp"], [], {2, 3}),
        ([], ["10.0.0.[2-9]@tcp"], set()),
        (["*@tcp"], ["10.0.0.3@tcp"], {2}),
        (["*@tcp1"], [], set()),
        (["connect=10.0.0.2@tcp 10.0.0.3@tcp"], [], {2, 3}),
        (["eth0"], [], {2, 3}),
        (["eth1 10.0.0.3@tcp"], [], {3}),
        ([], ["eth0"], set()),
        ([], ["bond7"], {2, 3}),
        (["ping=10.0.0.9@tcp", "portal4=10.0.0.9@tcp"], ["push=*@tcp"], {2, 3}),
    ],
)
def test_connections_are_for_those_who_are_allowed_and_not_denied(
    allow: list[str], deny: list[str], may: set[int]
) -> None:
    access = access_of(allow, deny)
    found = {nid.address[-1]: access.why_denied(nid, at("eth0")) for nid in (B, C)}
    assert {number for number, why in found.items() if not why} == may
    assert all(why.startswith(f"10.0.0.{number}@tcp is ") for number, why in found.items() if why)


def test_an_interface_may_be_any_of_a_bonded_net() -> None:
    access = access_of(deny=["eth1"])
    assert access.why_denied(B, at("eth0", "eth1"))
    assert not access.why_denied(B, at("eth0", "eth2"))
    assert not access.why_denied(B, at(None))


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("", "a list of NIDs is empty"),
        ("ping=", "a list of NIDs is empty"),
        ("10.0.0.999@tcp", "10.0.0.999"),
        ("pings=10.0.0.1@tcp", "'pings' is none of connect, ping, push and portalN"),
        ("portal64=10.0.0.1@tcp", "portal"),
        ("portal=10.0.0.1@tcp", "portal"),
        ("portal0=10.0.0.1@tcp", "use ping and push"),
        ("*", "names no net"),
    ],
)
@pytest.mark.parametrize("name", ["allow", "deny"])
def test_a_rule_that_is_none_is_refused(name: str, rule: str, words: str) -> None:
    with pytest.raises(LNetError) as refused:
        access_of(**{name: [rule]})
    assert refused.value.errno == errno.EINVAL
    assert refused.value.text.startswith(name)
    assert words in refused.value.text


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("connect=10.0.0.1@tcp0", "10.0.0.1@tcp"),
        (" 10.0.0.1@tcp  eth0", "10.0.0.1@tcp,eth0"),
        ("push = eth1", "push=eth1"),
        ("portal[4,9]=10.0.0.[1-8]@tcp", "portal[4,9]=10.0.0.[1-8]@tcp"),
        ("portal[0-63]=*@tcp1", None),
        ("portal*=*@tcp1", "portal*=*@tcp1"),
        ("ping=fd00::/64@tcp", "ping=fd00::/64@tcp"),
    ],
)
def test_rules_that_mean_the_same_have_one_form(written: str, kept: str | None) -> None:
    """It is read again as what it is, so that an export comes back."""
    if kept is None:
        with pytest.raises(LNetError):
            access_of(deny=[written])
        return
    access = access_of(deny=[written, kept, written])
    assert access.deny == (kept,)
    assert with_rules(access, deny=[written]).deny == (kept,)
    assert without(access_of(access.allow, access.deny), deny=[written]).deny == ()


def test_lists_are_made_anew_and_never_changed() -> None:
    more = with_rules(EVERYBODY, allow=["10.0.0.2@tcp"], deny=["ping=eth0"])
    less = without(more, allow=["10.0.0.2@tcp"])
    assert (EVERYBODY.allow, EVERYBODY.deny, bool(EVERYBODY)) == ((), (), False)
    assert (more.allow, more.deny) == (("10.0.0.2@tcp",), ("ping=eth0",))
    assert (less.allow, less.deny, bool(less)) == ((), ("ping=eth0",), True)
    assert more.opened_by(less) == ["connect"]
    assert less.opened_by(more) == []
    assert more.interfaces() == {"eth0"}
    assert more.why_denied(C, at("eth0"))
    assert not less.why_denied(C, at("eth0"))


@pytest.mark.parametrize("rule", ["10.0.0.9@tcp", "push=10.0.0.2@tcp"])
def test_a_rule_that_is_not_there_cannot_be_deleted(rule: str) -> None:
    access = access_of(allow=[rule], deny=["10.0.0.2@tcp"])
    with pytest.raises(LNetError, match="there is no such rule: 'lnetctl access show'") as refused:
        without(access, deny=["10.0.0.2@tcp", rule])
    assert refused.value.errno == errno.ENOENT


def test_there_are_so_many_rules_and_no_more() -> None:
    full = access_of(deny=[f"10.0.{at >> 8}.{at & 255}@tcp,eth{at}" for at in range(MOST // 2)])
    assert full.why_denied(Nid.parse("10.0.1.7@tcp"), at(None))
    with pytest.raises(LNetError, match=f"deny: {MOST + 1} NID ranges and interfaces") as refused:
        with_rules(full, deny=["10.0.0.7@tcp1"])
    assert refused.value.errno == errno.ENOSPC


class Asked:
    """`a`, whose lists these are, asked by `b` and `c`."""

    def __init__(self, *, allow: list[str] | None = None, deny: list[str] | None = None) -> None:
        self.fabric = Fabric()
        self.a = self.fabric.node(str(A), access=access_of(allow or (), deny or ()))
        self.b, self.c = self.fabric.node(str(B)), self.fabric.node(str(C))
        self.memory = bytearray(4)
        for portal in (4, 5):
            attach(self.a, self.memory, None, portal=portal, options=TARGET)

    def put(self, core: LNet, portal: int) -> bool:
        """Whether that node's PUT reaches a's memory; its driver tells the header anew each time."""
        for data in (b"AAAA", b"BBBB"):  # the second by what was kept of the first
            self.memory[:] = bytes(4)
            core.put(core.memory.md_bind(data, None, threshold=1), A, portal, 7, ack=False)
            self.fabric.run()
        return self.memory == b"BBBB"

    def ping(self, core: LNet) -> bool:
        """Whether that node's ping is answered with something."""
        events = Recorder()
        sink = bytearray(64)
        md = core.memory.md_bind(sink, events, threshold=2, options=TRUNCATE)
        core.get(md, A, PING_PORTAL, PING_MATCH_BITS)
        self.fabric.run()
        return any(sink)

    @property
    def denied(self) -> int:
        return self.a.stats.drops[DENIED]


def test_a_portal_is_for_those_on_its_list() -> None:
    asked = Asked(allow=["portal[4,9]=10.0.0.2@tcp"])
    assert asked.put(asked.b, 4)
    assert not asked.put(asked.c, 4)
    assert asked.denied == 2
    assert asked.put(asked.c, 5)
    assert asked.a.nis[A].stats.dropped[MsgType.PUT] == 2


def test_a_get_from_a_portal_that_is_denied_gets_nothing_and_a_word() -> None:
    asked = Asked(deny=["portal*=10.0.0.3@tcp"])
    asked.a.peers.add(C, []).guard = tag_of(asked.c.state.cookie)
    events, sink = Recorder(), bytearray(4)
    asked.memory[:] = b"DATA"
    asked.c.get(asked.c.memory.md_bind(sink, events, threshold=2), A, 4, 7)
    asked.fabric.run()
    assert sink == bytes(4)
    assert [event.status for event in events if event.status] == [-errno.EACCES]
    assert asked.ping(asked.c)


def test_pings_are_answered_to_those_who_are_allowed() -> None:
    asked = Asked(allow=["ping=10.0.0.2@tcp"])
    assert asked.ping(asked.b)
    assert not asked.ping(asked.c)
    assert asked.denied == 1
    assert asked.put(asked.c, 4)


def test_a_push_is_heard_of_those_who_are_allowed() -> None:
    """What is denied changes nothing: neither peers nor their NIDs."""
    asked = Asked(deny=["push=10.0.0.3@tcp"])
    for nid in (B, C):
        arrive(asked.a, A, src=nid, portal=PING_PORTAL, match_bits=PING_MATCH_BITS)
    assert asked.denied == 1
    known = [asked.a.peers.find_ni(nid) for nid in (B, C)]
    assert [pni.stats.dropped[MsgType.PUT] for pni in known if pni is not None] == [0, 1]


def test_a_push_that_is_denied_is_acknowledged_so_that_discovery_there_ends() -> None:
    """Whoever the peer is: kernel nodes read nothing but that there is an ACK."""
    asked = Asked(deny=["push=10.0.0.3@tcp", "portal4=10.0.0.3@tcp"])
    events, md = Recorder(), asked.c.memory.md_bind
    asked.c.put(md(b"news", events, threshold=2), A, PING_PORTAL, PING_MATCH_BITS)
    asked.c.put(md(b"else", events, threshold=2), A, 4, 7)
    asked.fabric.run()
    assert events.kinds == ["SEND", "SEND", "ACK"]
    assert (events[2].mlength, events[2].status) == (0, 0)
    assert asked.denied == 2


@pytest.mark.parametrize(
    ("rule", "kind", "portal", "bits"),
    [
        ("ping", MsgType.GET, PING_PORTAL, PING_MATCH_BITS),
        ("push", MsgType.PUT, PING_PORTAL, PING_MATCH_BITS),
        ("portal4", MsgType.PUT, 4, 7),
        ("portal4", MsgType.GET, 4, 7),
    ],
)
def test_who_is_denied_may_not_do_it_in_the_name_of_a_node_elsewhere(
    rule: str, kind: MsgType, portal: int, bits: int
) -> None:
    """The answer to an invented source goes back by who sent it. A gateway of ours sends for others."""
    asked = Asked(deny=[f"{rule}=10.0.0.3@tcp"])
    hdr = Header(int(kind), A, Nid.parse("10.9.0.1@tcp9"), portal=portal, match_bits=bits)
    for name, times in ((B, 0), (C, 1)):
        assert asked.a.receiver(asked.a.nis[A], name).begin(hdr, Forged()) == 0
        assert asked.denied == times
    asked.a.gateways.add(Net.parse("tcp9"), C, -1, 0)
    assert asked.a.receiver(asked.a.nis[A], C).begin(hdr, Forged()) == 0
    assert asked.denied == 1


def test_a_node_reaches_itself_whatever_its_lists_say() -> None:
    asked = Asked(allow=["ping=10.0.0.9@tcp", "portal4=10.0.0.9@tcp"])
    assert asked.put(asked.a, 4)
    assert asked.ping(asked.a)
    assert not asked.denied


def test_what_comes_by_an_interface_may_be_denied() -> None:
    asked = Asked()
    asked.a.nis[A].interface = "eth0"
    asked.a.state.access = access_of(deny=["push=eth0", "portal5=eth0"])
    assert asked.put(asked.b, 4)
    assert not asked.put(asked.b, 5)


# Lists that change -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [True, False])
def test_what_headers_led_to_is_judged_anew_when_lists_change(whole: bool) -> None:
    fabric = Fabric()
    fabric.node(str(A))
    core = fabric.node(str(B))
    memory = bytearray(8)
    attach(core, memory, None, options=TARGET)
    line = Line(core, whole)
    line.comes_often()
    for rules, comes in [
        ({"deny": ["portal5=10.0.0.1@tcp"]}, False),
        ({"deny": ["portal6=10.0.0.1@tcp"]}, True),
        ({"allow": ["portal5=10.0.0.9@tcp"]}, False),
        ({}, True),
    ]:
        memory[:] = bytes(8)
        core.set_access(access_of(**rules))
        line.comes()
        line.comes()
        assert bytes(memory) == (PAYLOAD if comes else bytes(8)), rules
    assert core.stats.drops[DENIED] == 4


@pytest.mark.pure  # the compiled core looks at no list of ours
@pytest.mark.parametrize("whole", [True, False])
def test_messages_that_are_alike_are_judged_once(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = Fabric()
    fabric.node(str(A))
    core = fabric.node(str(B))
    attach(core, bytearray(8), None, options=TARGET)
    line = Line(core, whole)
    asked: list[Header] = []
    admits = Access.admits

    def counted(lists: Access, hdr: Header, ni: NI) -> bool:
        asked.append(hdr)
        return admits(lists, hdr, ni)

    monkeypatch.setattr(Access, "admits", counted)
    line.comes_often()
    before = len(asked)  # the first one makes a peer, and is judged anew
    core.set_access(access_of(allow=["portal5=10.0.0.1@tcp"]))
    line.comes_often()
    line.comes_often()
    assert len(asked) == before + 1


def test_drivers_hear_of_lists_that_change_when_these_hold() -> None:
    asked = Asked()
    heard: list[str] = []
    ni = asked.a.nis[A]
    ni.lnd.access_changed = lambda ni: heard.append(asked.a.why_denied(ni, C))  # type: ignore[method-assign]
    asked.a.set_access(access_of(deny=["10.0.0.3@tcp"]))
    assert [why.partition(" by ")[0] for why in heard] == ["10.0.0.3@tcp is denied connect"]
    assert asked.a.access.deny == ("10.0.0.3@tcp",)
    assert not asked.b.access


def test_answers_that_are_kept_are_those_of_one_sender_one_thing_and_one_place() -> None:
    """As many senders as there may be, and more: who decides how many there are gets no memory by it."""
    access = access_of(deny=["portal5=10.0.0.[1-9]@tcp,eth1", "push=10.0.0.2@tcp"])
    here, there = at("eth0"), at("eth1")
    for _ in range(2):
        for portal, kind, src, ni, may in [
            (5, MsgType.PUT, B, here, False),
            (5, MsgType.PUT, Nid.parse("10.0.1.2@tcp"), here, True),
            (5, MsgType.PUT, Nid.parse("10.0.1.2@tcp"), there, False),
            (6, MsgType.PUT, B, here, True),
            (PING_PORTAL, MsgType.PUT, B, here, False),
            (PING_PORTAL, MsgType.GET, B, here, True),
        ]:
            assert access.admits(Header(int(kind), A, src, portal=portal), ni) is may
    for number in range(10_000):
        source = Nid.parse(f"10.9.{number >> 8}.{number & 255}@tcp")
        assert access.admits(Header(int(MsgType.PUT), A, source, portal=5), here)
    assert len(access._judged) <= 4096


def test_who_is_not_named_is_not_compared_with_each_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources may be invented: each of them, and who sends for them, is looked for in all ranges."""
    many = [f"10.{number // 256}.{number % 256}.[1-9]@tcp*" for number in range(MOST)]
    access = access_of(deny=[f"portal4={' '.join(many)}"])
    comparisons = Comparisons(monkeypatch)
    ni = at("eth0")
    for number in range(3000):
        source = Nid.parse(f"172.16.{number // 256}.{number % 256}@tcp9")
        hdr = Header(int(MsgType.PUT), A, source, portal=4)
        assert access.admits(hdr, ni)
        assert not access.denies_by_name(source, hdr, ni)
    assert comparisons.count < 10 * MOST
    assert access.denies_by_name(Nid.parse("10.3.7.9@tcp9"), hdr, ni)

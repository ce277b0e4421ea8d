"""Frames and their contents: round trips, versions, and bytes that are none of ours."""

from __future__ import annotations

import errno
import json
import struct
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ulnet.dlc import model
from ulnet.dlc.documents import LocalNetView, LocalNiView, NetDocument
from ulnet.dlc.errors import ErrorItem
from ulnet.dlc.model_bond import BondAdd, BondFailover, BondOptions, BondSet, BondSwitch
from ulnet.dlc.model_selftest import Brw, TestAdd
from ulnet.dlc.protocol import (
    HEADER_SIZE,
    VERSION,
    Answer,
    FrameBuffer,
    ProtocolError,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
    payload_size,
)

REQUESTS: list[model.Request] = [
    model.LnetConfigure(all=True),
    model.LnetUnconfigure(),
    model.NetAdd(net="tcp", interfaces=["eth0[0]"], tunables=model.Tunables(credits=4, tos=-1), cpts="[0]"),
    model.NetDel(nids=["10.0.0.1@tcp"]),
    model.NetShow(verbosity=4),
    model.NetSet(nids=["10.0.0.1@tcp"], cpts="[0,2-3]"),
    model.PeerAdd(primary="10.0.0.1@tcp", multi_rail=False),
    model.PeerDel(primary="10.0.0.1@tcp", force=True),
    model.PeerShow(nids=["10.0.0.[1-3]@tcp"]),
    model.PeerShow(count=7, after="10.0.0.1@tcp", strangers=False),
    model.PeerList(),
    model.PeerRefresh(["10.0.0.1@tcp"], "10.0.0.1@tcp", multi_rail=False, lock_primary=True),
    model.PeerRemove(["10.0.0.1@tcp"]),
    model.NetMatch([model.Ip2netsRule("tcp", ["eth*"], ["10.0.*.*"], model.Tunables(tos=1), "[0]")], True),
    BondAdd("bond", ["*@tcp"], BondOptions("loadbalance", weights=[3, 1], servers=["10.0.0.9@tcp"])),
    BondSet("10.0.0.1@bond", ["@tcp1"], BondOptions(failback="stay", keepalive=0.5)),
    BondSwitch("10.0.0.1@bond", "10.0.0.1@tcp", on=False),
    BondFailover("10.0.0.1@bond"),
    model.RouteAdd("tcp1", "10.0.0.1@tcp", hop=2),
    model.RouteDel("tcp1", "10.0.0.1@tcp"),
    model.RouteShow(net="tcp1", verbosity=1),
    model.RouterSet({"router_ping_timeout": 5}),
    model.RoutingSet(enable=True),
    model.RoutingShow(),
    model.BuffersSet(tiny=1),
    model.Distances(["10.0.0.[1-3]@tcp"]),
    model.Explain("10.0.0.1@tcp", source="10.0.0.2@tcp", size=4096),
    model.Trace("10.0.0.1@tcp", every_message=True, session=1, cursor=2),
    model.Discover(["10.0.0.2@tcp"], force=True),
    model.Ping(["fd00::1@tcp"], source="fd00::2@tcp", timeout=0.5),
    model.NumaShow(),
    model.OptionsShow(),
    model.CptOfNids(["10.0.0.1@tcp"]),
    model.StatsShow(),
    model.StatsReset(all=True),
    model.SumsShow("peers", "10.0.0.1@tcp"),
    model.UseShow("nets", top=3),
    model.AccessAdd(["portal4=eth0"], ["push=10.0.0.1@tcp"]),
    model.AccessDel(deny=["push=10.0.0.1@tcp"], all=True),
    model.AccessShow(),
    model.FaultAdd("drop", "*@tcp", "10.0.0.1@tcp", rate=3, portals=[4]),
    model.FaultDel("drop", source="*@tcp"),
    model.FaultReset("drop"),
    model.FaultShow("delay"),
    model.PeerSet(["10.0.0.2@tcp"], health=0),
    model.PeerDebug("10.0.0.2@tcp"),
    model.RecoveryShow(peer=True),
    model.GlobalShow(),
    model.GlobalSet({"discovery": 0}),
    model.UdspAdd(src="tcp", priority=0, idx=0),
    model.UdspDel(all=True),
    model.UdspShow(idx=3, verbosity=1),
    model.SelectionAdd("peer", local="10.0.0.1@tcp", remote="10.0.0.2@tcp", priority=1),
    model.SelectionDel("nid", nid="10.0.0.*@tcp", id=4),
    model.SelectionShow("net", net="tcp"),
    model.Export(backup=True),
    model.Lst(7, TestAdd("c", "s", distribute=2, brw=Brw("write", 1 << 20, "full", 8))),
]


def payload_of(frame: bytes) -> bytes:
    return frame[HEADER_SIZE:]


def test_every_request_survives_the_wire() -> None:
    assert {type(request) for request in REQUESTS} == set(model.Request.__args__)
    for request in REQUESTS:
        assert decode_request(payload_of(encode_request(request))) == request


def test_every_request_says_how_its_errors_are_filed() -> None:
    assert all(request.verb and request.entity for request in REQUESTS)


def test_an_answer_keeps_its_fields_in_order_and_leaves_out_what_is_unset() -> None:
    document = NetDocument([LocalNetView("tcp", [LocalNiView(nid="10.0.0.1@tcp", interfaces={0: "eth0"})])])
    reply = decode_reply(payload_of(encode_reply(Answer(document, [ErrorItem("show", "net", -5, "x")]))))
    assert list(json.loads(bytes(reply.result))["net"][0]) == ["net type", "local NI(s)"]
    assert json.loads(bytes(reply.result))["net"][0]["local NI(s)"] == [
        {"nid": "10.0.0.1@tcp", "interfaces": {"0": "eth0"}}
    ]
    assert msgspec.json.decode(reply.result, type=NetDocument) == document
    assert reply.errors == [ErrorItem("show", "net", -5, "x")]


@pytest.mark.requirement("bck-005", "bck-010")
def test_another_version_of_the_protocol_is_refused_by_naming_both() -> None:
    other = json.dumps({"version": VERSION + 1, "request": {"op": "from.the.future", "really": []}}).encode()
    with pytest.raises(ProtocolError, match=rf"version {VERSION + 1}, this lnetd version {VERSION}") as bad:
        decode_request(other)
    assert bad.value.errno == errno.EPROTONOSUPPORT
    answer = json.dumps({"version": VERSION + 1, "result": 7, "more": 1}).encode()
    with pytest.raises(ProtocolError, match=rf"version {VERSION + 1}, this lnetctl version {VERSION}"):
        decode_reply(answer)


@pytest.mark.parametrize(
    "request_",
    [
        {"op": "nothing.like.it"},
        {"op": "net.show", "verbosity": 9},
        {"op": "net.show", "verbosity": "all"},
        {"op": "net.add", "net": 7},
        {"op": "net.add", "nett": "tcp"},
        {"op": "ping"},
        {"op": "ping", "nids": ["10.0.0.1@tcp"], "timeout": 0},
        {"op": "ping", "nids": ["10.0.0.1@tcp"], "timeout": 1e9},
        {"op": "global.set", "values": {"discovery": "on"}},
        {},
        None,
        [],
        "net.show",
    ],
)
def test_a_request_that_the_model_does_not_know_is_refused(request_: Any) -> None:
    with pytest.raises(ProtocolError, match="cannot be understood") as refused:
        decode_request(json.dumps({"version": VERSION, "request": request_}).encode())
    assert refused.value.errno == errno.EINVAL


def test_text_that_is_not_utf_8_is_refused_before_it_is_sent() -> None:
    with pytest.raises(ProtocolError, match="not UTF-8"):
        encode_request(model.NetShow(net="\udcff"))


@given(st.binary(max_size=200))
def test_no_payload_makes_anything_but_a_protocol_error(data: bytes) -> None:
    for decode in (decode_request, decode_reply):
        with suppress(ProtocolError):
            decode(data)


@given(
    st.recursive(st.none() | st.text(max_size=5) | st.integers(), lambda inner: st.lists(inner), max_leaves=9)
)
def test_no_json_makes_anything_but_a_protocol_error(value: Any) -> None:
    for data in (value, {"version": 1, "request": value}, {"version": 1, "result": value, "errors": value}):
        for decode in (decode_request, decode_reply):
            with suppress(ProtocolError):
                decode(json.dumps(data).encode())


@given(st.lists(st.sampled_from(REQUESTS), max_size=5), st.integers(1, 64))
def test_frames_come_out_as_they_went_in_however_they_are_cut(requests: list[Any], size: int) -> None:
    stream = b"".join(encode_request(request) for request in requests)
    frames = FrameBuffer(1 << 16)
    got = []
    for at in range(0, len(stream), size):
        frames.feed(stream[at : at + size])
        while (payload := frames.next()) is not None:
            got.append(decode_request(payload))
    assert got == requests
    assert len(frames) == 0


@pytest.mark.parametrize("start", [b"GET / HTTP/1.0\r\n", b"\0", b"uLNx\0\0\0\0", b"SSH-"])
def test_foreign_bytes_are_known_by_their_first(start: bytes) -> None:
    frames = FrameBuffer(100)
    frames.feed(start)
    with pytest.raises(ProtocolError, match="not ulnet's control protocol"):
        frames.next()


def test_a_frame_that_is_too_long_is_refused_by_its_header() -> None:
    frames = FrameBuffer(100)
    frames.feed(struct.pack("<4sI", b"uLNc", 101))
    with pytest.raises(ProtocolError, match="101 bytes is too long: 100 are allowed"):
        frames.next()
    assert payload_size(struct.pack("<4sI", b"uLNc", 100), 100) == 100

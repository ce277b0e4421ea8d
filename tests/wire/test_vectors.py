"""Every LNet byte that real nodes sent, decoded and encoded again byte for byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from capture.packets import VECTORS, tcp_streams
from ulnet.capture.packet import UDP, ip_payload
from ulnet.capture.pcap import read_packets
from ulnet.nid import Nid
from ulnet.wire import acceptor, socklnd
from ulnet.wire.acceptor import ConnRequest
from ulnet.wire.errors import WireError
from ulnet.wire.lnet import MsgType, pack_header, unpack_header
from ulnet.wire.o2ib import MAGIC, O2ibMessage, O2ibType
from ulnet.wire.ping import PingInfo, info_size
from ulnet.wire.socklnd import FrameType, Hello, pack_frame_header, unpack_frame_header

# How many of each a file holds; the messages are as many as tshark counts (test_decode_vectors).
COUNTS = {
    "a_connect_and_ping_1rail": {"request": 3, "hello v3": 6, "GET": 1, "REPLY": 1, "ping info": 1},
    "b_ping_existing_conn": {"GET": 2, "REPLY": 2, "ping info": 2},
    "c_discover_push_1rail": {"GET": 1, "REPLY": 1, "PUT": 2, "ACK": 2, "ping info": 3},
    "c2_discover_push_2rail": {
        "request": 6, "hello v3": 12, "GET": 1, "REPLY": 1, "PUT": 2, "ACK": 2, "ping info": 3
    },
    "d_ni_add_del_push": {
        "request": 9, "hello v3": 18, "GET": 1, "REPLY": 1, "PUT": 4, "ACK": 4, "ping info": 5
    },
    "e1_lst_ping_10loops": {"request": 3, "hello v3": 6, "PUT": 28, "NOOP": 1},
    "g_keepalive_idle_45s": {"NOOP": 3},
    "j_large_nid_ipv6_hello_v4": {
        "request": 6, "hello v4": 12, "GET": 2, "REPLY": 2, "PUT": 3, "ACK": 3, "ping info": 5
    },
    "m_b2_15_vmC_to_master_vmA": {
        "request": 9, "hello v3": 18, "GET": 3, "REPLY": 3, "PUT": 2, "ACK": 2, "ping info": 5
    },
}  # fmt: skip


class Walk:
    """Takes a stream apart from its beginning, checking each piece; `seen` counts them."""

    def __init__(self, stream: bytes) -> None:
        self.stream = stream
        self.at = 0
        self.version = 3
        self.seen: Counter[str] = Counter()

    def all(self) -> Counter[str]:
        while self.at < len(self.stream):
            self.piece()
        return self.seen

    def piece(self) -> None:
        start = self.stream[self.at : self.at + 4]
        if (
            int.from_bytes(start, "little") == acceptor.MAGIC
            or int.from_bytes(start, "big") == acceptor.MAGIC
        ):
            self.request()
        elif start in (b"cirE", b"Eric", b"\xed\x0d\xbc\xee"):
            self.hello()
        else:
            self.frame()

    def same(self, encoded: bytes, what: str) -> None:
        assert encoded == self.stream[self.at : self.at + len(encoded)], what
        self.at += len(encoded)
        self.seen[what] += 1

    def request(self) -> None:
        request = ConnRequest.unpack(self.stream[self.at :])
        self.same(request.pack(), "request")

    def hello(self) -> None:
        hello = Hello.unpack(self.stream[self.at :])
        self.version = hello.version
        self.same(hello.pack(), f"hello v{hello.version}")

    def frame(self) -> None:
        kind, csum, cookie0, cookie1 = unpack_frame_header(self.stream, self.at)
        if kind == FrameType.NOOP:
            self.same(pack_frame_header(kind, csum, cookie0, cookie1), "NOOP")
            return
        large = self.version == 4
        header = unpack_header(self.stream, self.at + 24, large)
        whole = pack_frame_header(kind, csum, cookie0, cookie1) + pack_header(header, large)
        self.same(whole, MsgType(header.type).name)
        payload = self.stream[self.at : self.at + header.payload_length]
        if payload[:4] == b"gnip" and len(payload) >= 32:
            self.ping_info(payload)
        else:
            self.at += len(payload)

    def ping_info(self, payload: bytes) -> None:
        info = PingInfo.unpack(payload)
        assert not info.truncated
        assert info_size(payload) == len(payload)
        self.same(info.pack(), "ping info")


def walk_all(name: str) -> Iterator[Counter[str]]:
    for stream in tcp_streams(VECTORS / f"{name}.pcap"):
        yield Walk(stream).all()


@pytest.mark.parametrize("name", COUNTS)
def test_every_byte_comes_back(name: str) -> None:
    total: Counter[str] = Counter()
    for seen in walk_all(name):
        total += seen
    assert dict(total) == COUNTS[name]


@pytest.mark.parametrize("name", ["i_raw_probes_from_host", "i2_ctype_probes"])
def test_every_byte_of_the_odd_peer_comes_back_up_to_the_oddity(name: str) -> None:
    total: Counter[str] = Counter()
    refused = []
    for stream in tcp_streams(VECTORS / f"{name}.pcap"):
        walk = Walk(stream)
        try:
            walk.all()
        except WireError as error:
            refused.append(str(error))
        total += walk.seen
    if name == "i2_ctype_probes":
        assert not refused
        assert total["hello v3"] == 28 and total["GET"] == 8 and total["REPLY"] == total["ping info"] == 5
        return
    assert {"hello v1", "hello v2", "hello v3"} <= set(total)
    assert total["GET"] >= 5 and total["REPLY"] == 3
    assert any("version 0x5" in text for text in refused)
    assert any("0xc5" in text for text in refused)
    assert any("version 7" in text for text in refused)


def test_the_first_hello_says_what_the_node_is() -> None:
    client, server = tcp_streams(VECTORS / "a_connect_and_ping_1rail.pcap")[:2]
    request = ConnRequest.unpack(client)
    assert request == ConnRequest.to(Nid.parse("192.168.110.12@tcp"))
    hello = Hello.unpack(client[16:])
    assert (str(hello.src_nid), str(hello.dst_nid)) == ("192.168.110.11@tcp", "192.168.110.12@tcp")
    assert (hello.version, hello.ctype, hello.src_pid, hello.nips) == (3, socklnd.ConnType.CONTROL, 12345, 0)
    assert Hello.unpack(server).src_nid == hello.dst_nid


def test_ipv6_nodes_tell_large_nids() -> None:
    payloads = [
        stream[at:]
        for stream in tcp_streams(VECTORS / "j_large_nid_ipv6_hello_v4.pcap")
        if (at := stream.find(b"gnip")) >= 0
    ]
    infos = [PingInfo.unpack(payload) for payload in payloads]
    assert {info.features for info in infos} == {0x7E}
    assert all(info.primary is not None and info.primary.is_large for info in infos)
    assert {str(info.primary) for info in infos} == {"fd00:110::11@tcp", "fd00:110::12@tcp"}


def test_o2iblnd_messages() -> None:
    found = []
    with (VECTORS / "k0_o2iblnd_rxe_connect_ping_only.pcap").open("rb") as file:
        for packet in read_packets(file):
            carried = ip_payload(packet.link_type, packet.data)
            if carried is None or carried.protocol != UDP:
                continue
            at = carried.data.find(MAGIC.to_bytes(4, "little"))
            if at >= 0:
                message = O2ibMessage.unpack(carried.data[at:])
                found.append(message)
                raw = message.pack()
                assert raw == carried.data[at : at + len(raw)]
    assert [message.type for message in found] == [
        O2ibType.CONNREQ,
        O2ibType.CONNACK,
        O2ibType.IMMEDIATE,
        O2ibType.IMMEDIATE,
    ]
    request, ack, get, reply = found
    assert request.params == ack.params
    assert request.params is not None
    assert (request.params.queue_depth, request.params.max_fragments) == (8, 257)
    assert (request.dst_incarnation, ack.dst_incarnation) == (0, request.src_incarnation)
    assert get.header is not None and reply.header is not None
    assert (get.header.type, reply.header.type) == (MsgType.GET, MsgType.REPLY)
    assert str(get.header.dest_nid) == "192.168.110.12@o2ib"
    assert [str(entry.nid) for entry in PingInfo.unpack(reply.payload).entries] == ["192.168.110.12@o2ib"]

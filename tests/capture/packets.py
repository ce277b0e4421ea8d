"""For tests: TCP streams out of captures, and captures made by hand."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass, field
from pathlib import Path

from ulnet.capture.packet import TCP, IpPayload, ip_payload
from ulnet.capture.pcap import read_packets
from ulnet.capture.reassembly import Budget, HalfStream

VECTORS = Path(__file__).resolve().parents[1] / "data" / "vectors"
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16


def tcp_streams(path: Path) -> list[bytes]:
    """The bytes of every direction of every TCP connection in a capture, in order of first appearance."""
    streams: list[bytearray] = []
    halves: dict[tuple[bytes, bytes, bytes], tuple[HalfStream, bytearray]] = {}
    with path.open("rb") as file:
        for packet in read_packets(file):
            carried = ip_payload(packet.link_type, packet.data, packet.cut)
            if carried is None or carried.protocol != TCP:
                continue
            _add(carried, halves, streams)
    return [bytes(stream) for stream in streams if stream]


def _add(
    carried: IpPayload,
    halves: dict[tuple[bytes, bytes, bytes], tuple[HalfStream, bytearray]],
    streams: list[bytearray],
) -> None:
    data = carried.data
    key = (carried.src, carried.dst, data[:4])
    seq = int.from_bytes(data[4:8], "big")
    if key not in halves or data[13] & SYN:
        halves[key] = HalfStream(Budget()), bytearray()
        streams.append(halves[key][1])
    half, stream = halves[key]
    if data[13] & SYN:
        half.start(seq + 1)
    for chunk in half.feed(seq, data[(data[12] >> 4) * 4 :], carried.cut):
        assert not chunk.missing
        stream += chunk.data


@dataclass
class Talk:
    """Writes a capture of one TCP connection, client to server, packet by packet."""

    client: tuple[str, int] = ("10.0.0.1", 1023)
    server: tuple[str, int] = ("10.0.0.2", 988)
    vlan: bool = False
    packets: list[tuple[int, bytes]] = field(default_factory=list)
    seq: list[int] = field(default_factory=lambda: [1000, 0xFFFFFFF0])  # the server's soon wraps
    time_us: int = 0

    def connect(self) -> Talk:
        self.segment(0, b"", SYN)
        self.segment(1, b"", SYN | ACK)
        return self.segment(0, b"", ACK)

    def send(self, who: int, data: bytes, flags: int = PSH | ACK) -> Talk:
        return self.segment(who, data, flags)

    def segment(self, who: int, data: bytes, flags: int = PSH | ACK, at: int | None = None) -> Talk:
        """A segment of who (0: client); `at` sends old or future bytes without moving on."""
        seq = self.seq[who] if at is None else self.seq[who] + at
        if at is None:
            self.seq[who] = (self.seq[who] + len(data) + bool(flags & (SYN | FIN))) & 0xFFFFFFFF
        ends = (self.client, self.server) if who == 0 else (self.server, self.client)
        ports = struct.pack(">HH", ends[0][1], ends[1][1])
        ack = self.seq[1 - who] if flags & ACK else 0
        tcp = ports + struct.pack(">IIBBHHH", seq & 0xFFFFFFFF, ack, 5 << 4, flags, 65535, 0, 0) + data
        self.packets.append((self.time_us, self._frame(ends[0][0], ends[1][0], tcp)))
        self.time_us += 1000
        return self

    def _frame(self, src: str, dst: str, tcp: bytes) -> bytes:
        addresses = bytes(map(int, src.split("."))) + bytes(map(int, dst.split(".")))
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, TCP, 0) + addresses
        tag = b"\x81\x00\x00\x07" if self.vlan else b""
        return bytes(12) + tag + b"\x08\x00" + ip + tcp

    def pcap(self, *, order: str = "<", nanoseconds: bool = False, snap: int = 262144) -> bytes:
        magic = 0xA1B23C4D if nanoseconds else 0xA1B2C3D4
        out = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snap, 1)
        for time_us, frame in self.packets:
            fraction = time_us % 1_000_000 * (1000 if nanoseconds else 1)
            head = struct.pack(order + "IIII", time_us // 1_000_000, fraction, len(frame[:snap]), len(frame))
            out += head + frame[:snap]
        return out

    def pcapng(self, order: str = "<") -> bytes:
        def block(kind: int, body: bytes) -> bytes:
            body += bytes(-len(body) % 4)
            size = struct.pack(order + "I", len(body) + 12)
            return struct.pack(order + "I", kind) + size + body + size

        out = block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))
        resolution = struct.pack(order + "HHBxxx", 9, 1, 9) + struct.pack(order + "HH", 0, 0)
        out += block(1, struct.pack(order + "HHI", 1, 0, 0) + resolution)
        out += block(0x0BAD, b"a block that nobody knows")
        for time_us, frame in self.packets:
            stamp = time_us * 1000
            sizes = (stamp >> 32, stamp & 0xFFFFFFFF, len(frame), len(frame))
            out += block(6, struct.pack(order + "IIIII", 0, *sizes) + frame)
        return out

    def file(self) -> io.BytesIO:
        return io.BytesIO(self.pcap())

"""The paths of messages of one kind to one destination, and what of their choice is kept between messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from ulnet.core.cpt import ANY_CPT, CptTable
from ulnet.core.ni import NI, LocalNet
from ulnet.core.path import Path, load_of
from ulnet.core.peer import Peer, PeerNet, PeerNi
from ulnet.core.selection.candidates import Candidates
from ulnet.wire.lnet import HEADER_SIZE, Header

if TYPE_CHECKING:
    from ulnet.core.generation import Generation
    from ulnet.nid import Nid

__all__ = ["SAME_BATCH", "SMALL", "Key", "NetPair", "PathSet", "Query"]

SAME_BATCH: Final = "same batch"  # in place of a criterion that decided
_MOST_MESSAGES: Final = 64
_MOST_BYTES: Final = 4096  # of payload, of all of a batch together
SMALL: Final = _MOST_BYTES + HEADER_SIZE  # others may join a message of that size, with its header


class Key(NamedTuple):
    """What the choice of a path depends on besides destination and size."""

    kind: int  # of the messages
    source: Nid | None = None  # the NI that they are bound to
    bound: bool = False  # to the destination's very NID
    ping: bool = False  # they may leave by any NI, whatever the peer knows
    via: Nid | None = None  # the gateway that they go over
    pid: int = 0
    cpt: int = 0  # where their memory is near


class Query:
    """What a choice depends on besides its candidates."""

    __slots__ = ("_cpts", "_row", "batch", "bound", "cached", "ni", "numa_range", "peer", "size")

    def __init__(self, peer: Peer, size: int, cpts: CptTable, cpt: int, numa_range: int) -> None:
        self.peer: Peer = peer
        self.size: int = size
        self._cpts = cpts.count
        self._row = cpts.distances_from(cpt)  # from the message's memory to a CPT
        self.numa_range: int = numa_range
        self.bound: PeerNi | None = None  # the peer's NI, where that is given
        self.ni: NI | None = None  # once the local side is chosen
        self.cached: Candidates | None = None  # those of the present stage, where these are cached
        self.batch: Path | None = None  # whose messages wait to be written, and which takes this one

    def distance_to(self, ni: NI) -> int:
        """The distance of an NI from the memory: of its device, else of the CPTs that it is tied to."""
        cpts = ni.cpts
        if ni.dev_cpt != ANY_CPT or len(cpts) == self._cpts:
            return self._row(ni.dev_cpt)
        return min(map(self._row, cpts))


class NetPair(NamedTuple):
    """A net that both sides are on."""

    local: LocalNet
    remote: PeerNet


class PathSet:
    """The paths to one NID, or to any NID of its peer: who is left by what stays true between messages.

    Valid for one generation of the node and one of the peer; then it is filled anew. `template` is the header
    of the last message that was asked for. Small messages join the path that was chosen for one before them,
    while that waits to be written: what waits together leaves by one call to the kernel, which costs more
    than any choice gains.
    """

    __slots__ = (
        "ack",
        "asked",
        "batch",
        "batch_bytes",
        "batch_left",
        "batch_mark",
        "dest",
        "fixed",
        "free",
        "generation",
        "key",
        "load",
        "locals",
        "nets",
        "paths",
        "query",
        "ready",
        "remotes",
        "routed",
        "settled",
        "stamp",
        "template",
    )

    def __init__(self, dest: PeerNi, key: Key) -> None:
        self.dest: PeerNi = dest
        self.key: Key = key
        self.generation: Generation = dest.peer.generation
        self.stamp: int = -1  # the sum of both generations that it was filled in: neither ever falls
        # the same where requests can go at once: nobody is asked first, no gateway is needed
        self.ready: int = -1
        self.settled: bool = False  # nobody has to be asked first who is there
        self.routed: bool = False  # a gateway is needed
        self.fixed: Path | None = None  # the only one, while there is no choice
        self.query: Query | None = None
        self.nets: Candidates = Candidates(())
        self.locals: dict[LocalNet | None, Candidates] = {}  # under None: of all nets together
        self.remotes: dict[NI, Candidates] = {}
        self.free: bool = False  # nothing but load, credits and turns decides
        self.paths: dict[tuple[NI, PeerNi, PeerNi], Path] = {}
        self.template: Header = Header(-1, payload_length=-1, length=-1)  # nothing was asked for yet
        # Of the last request: CPT, bytes to send or to get, match bits, hdr_data, portal, offset, pid.
        self.asked: tuple[int, int, int, int, int, int, int] = (key.cpt, -1, 0, 0, 0, 0, 0)
        self.ack: bool = False  # PUTs of that template are acknowledged
        self.load: int = 0  # of a message of that template, with its header
        self.batch: Path | None = None  # that the next small ones may join …
        self.batch_left: int = 0  # … so many
        self.batch_bytes: int = 0  # … with so much payload in all
        self.batch_mark: int = 0  # … while nothing has left by it

    def stages(self) -> Iterator[Candidates]:
        """The candidates of all stages."""
        yield self.nets
        yield from self.locals.values()
        yield from self.remotes.values()

    def clear(self) -> None:
        """Forget what was decided."""
        self.fixed = self.batch = None
        self.batch_left = 0
        self.nets = Candidates(())
        self.locals = {}
        self.remotes = {}
        self.free = self.routed = False
        self.stamp = self.ready = -1
        paths, self.paths = self.paths, {}
        for path in paths.values():
            path.close()

    def ask(self, template: Header) -> None:
        """The next messages are of that template."""
        self.template = template
        self.load = load_of(template)
        length = template.payload_length + template.length
        # fmt: off
        self.asked = (self.key.cpt, length, template.match_bits, template.hdr_data, template.portal,
                      template.offset, template.dest_pid)
        # fmt: on

    def begin_batch(self, path: Path, size: int) -> None:
        """A message of `size` bytes goes by that path, and is the first of a batch."""
        room = min(path.ni.tx_credits, path.peer_ni.tx_credits, _MOST_MESSAGES) - 1
        self.batch = path
        self.batch_left = max(room, 0)
        self.batch_bytes = _MOST_BYTES - size + HEADER_SIZE
        self.batch_mark = path.left

    def join(self, size: int, count: int = 1) -> Path | None:
        """The path of that batch, where `count` messages of `size` bytes join it (0: where one would)."""
        batch = self.batch
        payload = size - HEADER_SIZE
        left, room = self.batch_left, self.batch_bytes
        if batch is None or left <= 0 or payload > room or batch.left != self.batch_mark:
            return None
        self.batch_left = left - count
        self.batch_bytes = room - payload * count
        batch.joined += count
        return batch

    def take_turns(self, path: Path) -> None:
        """A message goes by that path: it counts where weights decide."""
        ni, pni = path.ni, path.peer_ni
        net = NetPair(ni.net, pni.net)
        for stage, one in ((self.nets, net), (self.locals.get(ni.net), ni), (self.remotes.get(ni), pni)):
            if stage is not None and stage.turns is not None:
                stage.turns.take(one)

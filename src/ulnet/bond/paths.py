"""Paths between bonding NIs: a local slave and a slave of the peer on the same net."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ulnet.core.ni import MAX_HEALTH, NI
from ulnet.wire.bond import Configuration, Mode, SlaveStatus

if TYPE_CHECKING:
    from ulnet.core.path_load import PathLoad
    from ulnet.core.peer import PeerNi
    from ulnet.core.peer_table import PeerTable
    from ulnet.nid import Nid

__all__ = ["Path", "Tell", "allowed_of", "choose_from", "working_of"]


# Hears of one comparison: its name, the paths, what each costs; those that cost least are left.
Tell = Callable[[str, "Sequence[Path]", Sequence[float]], None]


class Path:
    """One of them. `down`: a message or a keepalive failed there, and nothing has come since."""

    __slots__ = (
        "_peers",
        "again",
        "down",
        "had",
        "heard_at",
        "local",
        "ni",
        "nid",
        "probing",
        "remote",
        "tried_at",
        "tries",
        "weight",
    )

    def __init__(self, peers: PeerTable, local: int, ni: NI, remote: int, nid: Nid, weight: float) -> None:
        self._peers = peers
        self.local: int = local  # index of the local slave
        self.ni: NI = ni
        self.remote: int = remote  # index of the peer's slave
        self.nid: Nid = nid
        self.weight: float = weight
        self.had: float = 0.0  # its share of the load so far, for its weight
        self.down: bool = False
        self.probing: bool = False  # a keepalive is under way
        self.again: bool = False  # and another one is to follow if that one is not answered
        self.tried_at: float = -1.0  # when the last keepalive set out
        self.tries: int = 0  # keepalives in a row that were not answered
        self.heard_at: float = -1.0  # when something last came this way; below 0: never

    @property
    def peer_ni(self) -> PeerNi | None:
        """The core's view of the other end."""
        return self._peers.find_ni(self.nid)

    @property
    def path_load(self) -> PathLoad | None:
        """What the core knows of the load here."""
        pni = self.peer_ni
        return pni.path_loads.get(self.ni) if pni is not None else None

    @property
    def rate(self) -> float:
        """Bytes per second as observed; 0: not known."""
        path_load = self.path_load
        return path_load.rate if path_load is not None else 0.0

    @property
    def outstanding(self) -> int:
        """Bytes under way, once `NodeState.settle` was called."""
        path_load = self.path_load
        return path_load.outstanding if path_load is not None else 0

    @property
    def works(self) -> bool:
        """Whether messages make progress here."""
        if self.down or not self.ni.up:
            return False
        path_load = self.path_load
        return path_load is None or not path_load.stalled

    @property
    def well(self) -> bool:
        """Whether both ends are in full health."""
        pni = self.peer_ni
        return self.ni.health == MAX_HEALTH and (pni is None or pni.health == MAX_HEALTH)


def allowed_of(paths: Sequence[Path], peer: Configuration, switched_off: Sequence[bool]) -> list[Path]:
    """The paths that may be used at all."""
    return [
        path
        for path in paths
        if path.ni.active
        and not path.ni.fatal
        and not switched_off[path.local]
        and peer.slaves[path.remote].status != SlaveStatus.OFF
    ]


def working_of(allowed: Sequence[Path], peer: Configuration) -> list[Path]:
    """The paths that make progress, and whose far end is said to be up."""
    return [path for path in allowed if path.works and peer.slaves[path.remote].status == SlaveStatus.UP]


def choose_from(
    paths: Sequence[Path],
    own: Configuration,
    peer: Configuration,
    switched_off: Sequence[bool],
    *,
    chosen: bool = False,
    tell: Tell | None = None,
) -> list[Path]:
    """The paths that messages may take now (bonding design §6.4); empty: the peer cannot be reached.

    Where nothing is known to work the best that is left is tried. In standby the peer's active slave goes
    before ours, unless ours was `chosen` by command. `tell` hears of every comparison.
    """
    left = allowed_of(paths, peer, switched_off)
    if tell is not None:
        tell("may be used", paths, [float(path not in left) for path in paths])
    steps: list[tuple[str, Callable[[Path], float]]] = [
        ("works", lambda path: not path.works),
        ("said to be up", lambda path: peer.slaves[path.remote].status != SlaveStatus.UP),
    ]
    if peer.mode is Mode.STANDBY:
        steps.append(("active there", lambda path: _behind(path.remote, peer.active)))
    if own.mode is Mode.STANDBY:
        here: tuple[str, Callable[[Path], float]]
        here = ("active here", lambda path: _behind(path.local, own.active))
        steps.insert(2 if chosen else len(steps), here)
    else:
        steps.append(("full health", lambda path: not path.well))
    for name, cost_of in steps:
        if len(left) < 2:
            break
        costs = [float(cost_of(path)) for path in left]
        if tell is not None:
            tell(name, left, costs)
        least = min(costs)
        left = [path for path, cost in zip(left, costs, strict=True) if cost == least]
    return left


def _behind(index: int, active: int) -> int:
    """The active slave is first, then the others in order."""
    return 0 if index == active else index + 1

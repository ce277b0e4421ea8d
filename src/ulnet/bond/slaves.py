"""The slaves of one bonding NI: which work, which is active, what peers are told (bonding design §3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ulnet.bond.standby import Place, Standby
from ulnet.wire.bond import Configuration, Mode, SlaveEntry, SlaveStatus

if TYPE_CHECKING:
    from ulnet.bond.config import BondConfig
    from ulnet.bond.contract import MasterUpcalls
    from ulnet.bond.peer import BondPeer
    from ulnet.core.ni import NI
    from ulnet.nid import Nid

__all__ = ["Slaves"]


class Slaves:
    """In order, the default one first. `own` is the configuration that peers are told."""

    __slots__ = ("_config", "_core", "_nid", "_owned", "nis", "off", "own", "standby")

    def __init__(self, core: MasterUpcalls, nid: Nid, config: BondConfig) -> None:
        self._core = core
        self._nid = nid
        self._config = config
        self.nis: list[NI] = [core.nis[one] for one in config.slaves]
        self._owned = set(self.nis)
        self.off: list[bool] = [False] * len(self.nis)
        self.standby: Standby = Standby(config.failback)
        self.own: Configuration = self._told([ni.up for ni in self.nis])

    def __contains__(self, ni: NI) -> bool:
        return ni in self._owned

    @property
    def active(self) -> NI:
        """Of standby mode."""
        return self.nis[self.standby.active]

    @property
    def chosen(self) -> bool:
        """Whether the active one is so by command."""
        return self.standby.place is Place.CHOSEN

    def replace(self, config: BondConfig) -> None:
        """Other slaves, or another mode: what is switched off stays off, what is active stays active."""
        active = self.active.nid
        was_off = {ni.nid for ni, off in zip(self.nis, self.off, strict=True) if off}
        self._config = config
        self.nis = [self._core.nis[one] for one in config.slaves]
        self._owned = set(self.nis)
        self.off = [ni.nid in was_off for ni in self.nis]
        self.standby.failback = config.failback
        if active in config.slaves:
            self.standby.active = config.slaves.index(active)
        else:
            self.standby.force(0)

    def works(self, index: int, peers: Iterable[BondPeer]) -> bool:
        """Whether one can be used: it is up, on, and not silent on all paths while others are heard."""
        ni = self.nis[index]
        if not ni.active or not ni.up or self.off[index]:
            return False
        seen = others = False
        for peer in peers:
            for path in peer.paths if peer.connected else ():
                if path.local != index:
                    others = others or path.works
                elif path.works:
                    return True
                else:
                    seen = True
        return not seen or not others

    def look(self, peers: Iterable[BondPeer]) -> tuple[bool, bool]:
        """Judge them anew: whether what peers are told changes, and whether another one is active."""
        known = list(peers)
        works = [self.works(index, known) for index in range(len(self.nis))]
        moved = self._config.mode is Mode.STANDBY and self.standby.look(works)
        told = self._told(works)
        if told == self.own:
            return False, moved
        self.own = told
        return True, moved

    def next_backup(self, peers: Iterable[BondPeer]) -> int | None:
        """The one after the active one that works."""
        known, count = list(peers), len(self.nis)
        order = [(self.standby.active + step) % count for step in range(1, count)]
        return next((index for index in order if self.works(index, known)), None)

    def _told(self, works: list[bool]) -> Configuration:
        config = self._config
        entries = []
        for index, ni in enumerate(self.nis):
            status = SlaveStatus.UP if works[index] else SlaveStatus.DOWN
            if self.off[index]:
                status = SlaveStatus.OFF
            entries.append(SlaveEntry(ni.nid, config.weights[index], status))
        active = self.standby.active if config.mode is Mode.STANDBY else 0
        return Configuration(self._nid, tuple(entries), config.mode, config.policy, config.failback, active)

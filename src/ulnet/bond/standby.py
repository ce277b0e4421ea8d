"""Which slave is active in standby mode: fail over, again, and back or not (bonding design §2.2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

__all__ = ["TABLE", "Place", "Seen", "Standby", "Turn"]


class Place(Enum):
    """Where traffic is."""

    DEFAULT = "on the default slave"
    BACKUP = "on a backup"
    CHOSEN = "where a command put it"


class Seen(Enum):
    """What the states of the slaves amount to."""

    FINE = "the active one works, the default one does not"
    DEFAULT_BACK = "the active one works, and so does the default one"
    LOST = "the active one does not work, the default one does"
    ALL_BUT_BACKUPS_LOST = "neither works, but another one does"
    ALL_LOST = "none works"


class Turn(Enum):
    """What to do."""

    STAY = "stay"
    TO_DEFAULT = "go to the default slave"
    TO_NEXT = "go to the next that works"
    TO_DEFAULT_IF_WANTED = "go back, unless told to stay"


TABLE: Final[dict[tuple[Place, Seen], tuple[Turn, Place]]] = {
    (Place.DEFAULT, Seen.FINE): (Turn.STAY, Place.DEFAULT),
    (Place.DEFAULT, Seen.DEFAULT_BACK): (Turn.STAY, Place.DEFAULT),
    (Place.DEFAULT, Seen.LOST): (Turn.TO_DEFAULT, Place.DEFAULT),
    (Place.DEFAULT, Seen.ALL_BUT_BACKUPS_LOST): (Turn.TO_NEXT, Place.BACKUP),
    (Place.DEFAULT, Seen.ALL_LOST): (Turn.STAY, Place.DEFAULT),
    (Place.BACKUP, Seen.FINE): (Turn.STAY, Place.BACKUP),
    (Place.BACKUP, Seen.DEFAULT_BACK): (Turn.TO_DEFAULT_IF_WANTED, Place.DEFAULT),
    (Place.BACKUP, Seen.LOST): (Turn.TO_DEFAULT, Place.DEFAULT),
    (Place.BACKUP, Seen.ALL_BUT_BACKUPS_LOST): (Turn.TO_NEXT, Place.BACKUP),
    (Place.BACKUP, Seen.ALL_LOST): (Turn.STAY, Place.BACKUP),
    (Place.CHOSEN, Seen.FINE): (Turn.STAY, Place.CHOSEN),
    (Place.CHOSEN, Seen.DEFAULT_BACK): (Turn.STAY, Place.CHOSEN),
    (Place.CHOSEN, Seen.LOST): (Turn.TO_DEFAULT, Place.DEFAULT),
    (Place.CHOSEN, Seen.ALL_BUT_BACKUPS_LOST): (Turn.TO_NEXT, Place.BACKUP),
    (Place.CHOSEN, Seen.ALL_LOST): (Turn.STAY, Place.CHOSEN),
}


class Standby:
    """The active slave of one bonding NI, by index; 0 is the default one."""

    __slots__ = ("active", "failback", "place")

    def __init__(self, failback: bool) -> None:
        self.active: int = 0
        self.place: Place = Place.DEFAULT
        self.failback: bool = failback

    def look(self, works: Sequence[bool]) -> bool:
        """The states of the slaves may have changed; whether another one is active now."""
        before = self.active
        turn, place = TABLE[self.place, self._seen(works)]
        if turn is Turn.TO_DEFAULT_IF_WANTED:
            turn, place = (Turn.TO_DEFAULT, place) if self.failback else (Turn.STAY, self.place)
        if turn is Turn.TO_DEFAULT:
            self.active = 0
        elif turn is Turn.TO_NEXT:
            count = len(works)
            self.active = next(
                index for step in range(1, count + 1) if works[index := (before + step) % count]
            )
        self.place = place
        return self.active != before

    def force(self, index: int) -> None:
        """A command: traffic goes there until that slave fails."""
        self.active = index
        self.place = Place.CHOSEN if index else Place.DEFAULT

    def _seen(self, works: Sequence[bool]) -> Seen:
        if self.active < len(works) and works[self.active]:
            return Seen.DEFAULT_BACK if works[0] else Seen.FINE
        if works[0]:
            return Seen.LOST
        return Seen.ALL_BUT_BACKUPS_LOST if any(works) else Seen.ALL_LOST

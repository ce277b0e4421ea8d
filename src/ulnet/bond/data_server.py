"""The serving side of bonding data, at one bonding NI (bonding design §5)."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from ulnet.bond.connect import ANSWER_TIME
from ulnet.bond.registry import Registry
from ulnet.wire.bond import Answer, Kind, Register, Resolve

if TYPE_CHECKING:
    from ulnet.bond.bondni import BondNi
    from ulnet.core.ni import NI
    from ulnet.nid import Nid

__all__ = ["DataServer"]

_MOST_ANSWERS: Final = 1024  # under way to one NID: those that it does not take end in one turn


class DataServer:
    """Every bonding NI answers for itself; one that has a slave named as a server, for all of its net."""

    __slots__ = ("_answers", "_bond", "registry")

    def __init__(self, bond: BondNi) -> None:
        self._bond = bond
        self._answers: dict[Nid, int] = {}  # under way, by whom they are for
        self.registry: Registry = Registry(bond.config.slaves[0].net)

    @property
    def serves(self) -> bool:
        """Whether it is a server."""
        return any(self._bond.owns_nid(nid) for nid in self._bond.config.servers)

    def register(self, register: Register, at: NI, source: Nid) -> None:
        """A bonding NI registers: the message came over the slave `at`, from the NID source."""
        nid = register.configuration.nid
        peer = self._bond.peers.get(nid)
        if not self.serves:
            answer = Answer(register.request, nid, errno.ENOENT)
        elif peer is None or not peer.connected or not peer.has_slave(source):
            answer = Answer(
                register.request, nid, errno.EAGAIN
            )  # HELLO goes first, and says who speaks for it
        else:
            answer = self.registry.register(register, source)
        self._tell(at, source, answer)

    def resolve(self, question: Resolve, at: NI, source: Nid) -> None:
        """A bonding NI asks for another one."""
        bond = self._bond
        if question.nid == bond.ni.nid:
            own = Answer(question.request, question.nid, 0, bond.incarnation, bond.slaves.own)
            self._tell(at, source, own)
        elif self.serves:
            self._tell(at, source, self.registry.resolve(question))
        else:
            self._tell(at, source, Answer(question.request, question.nid, errno.ENOENT))

    def _tell(self, at: NI, nid: Nid, answer: Answer) -> None:
        answers = self._answers
        if answers.get(nid, 0) >= _MOST_ANSWERS:
            self._bond.core.stats.drops["more bonding questions than answers may be under way"] += 1
            return
        answers[nid] = answers.get(nid, 0) + 1

        def ended(ok: bool) -> None:
            answers[nid] -= 1
            if not answers[nid]:
                del answers[nid]

        self._bond.control.tell(at, nid, Kind.ANSWER, answer.pack(), ANSWER_TIME, ended)

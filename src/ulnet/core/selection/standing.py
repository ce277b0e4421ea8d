"""What is kept of the ways to one peer between messages: who is left by the standing criteria."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ulnet.core.ni import NI, LocalNet
from ulnet.core.peer import PeerNi
from ulnet.core.selection.choice import Choice
from ulnet.core.selection.convoy import SAME_BATCH
from ulnet.core.selection.criteria import NetPair
from ulnet.core.selection.line import Line
from ulnet.core.selection.rivals import Rivals

__all__ = ["Standing"]


class Standing:
    """What stays true of the ways to one peer until the epoch moves: who is left by the standing criteria."""

    __slots__ = ("balance", "by_load", "epoch", "lines", "locals", "nets", "remotes", "together")

    def __init__(self, epoch: int, balance: str, together: Sequence[NI]) -> None:
        self.epoch = epoch
        self.balance = balance
        self.together = together  # the NIs of all nets that are left
        self.nets = Rivals(())
        self.locals: dict[LocalNet | None, Rivals] = {}  # under None: of all nets together
        self.remotes: dict[NI, Rivals] = {}
        self.lines: dict[tuple[PeerNi, ...], Line] = {}  # of the same peer NIs from several NIs
        self.by_load: Rivals | None = None  # the local NIs, if nothing but load, credits and turns decide

    def rivals(self) -> Iterator[Rivals]:
        """Those of all stages."""
        yield self.nets
        yield from self.locals.values()
        yield from self.remotes.values()

    def joined(self, ni: NI, pni: PeerNi) -> Choice | None:
        """The choice for a message that joins another on its way; None if load alone never decides."""
        rivals = self.by_load
        if rivals is None:
            return None
        remotes = self.remotes[ni]
        one_ni, one_pni = len(rivals.candidates) == 1, len(remotes.candidates) == 1
        if one_ni and one_pni:
            return None
        return ni, pni, rivals.settled if one_ni else SAME_BATCH, remotes.settled if one_pni else SAME_BATCH

    def take_turns(self, ni: NI, pni: PeerNi) -> None:
        """A message goes from `ni` to `pni`: it counts where weights decide."""
        net = NetPair(ni.net, pni.net)
        for rivals, one in ((self.nets, net), (self.locals[ni.net], ni), (self.remotes[ni], pni)):
            if rivals.turns is not None:
                rivals.turns.take(one)

"""What a bonding data server keeps: which slaves and mode each bonding NID of its net has (design §5)."""

from __future__ import annotations

import errno
from typing import Final

from ulnet.bond.hello import is_older
from ulnet.nid import Net, Nid
from ulnet.wire.bond import Answer, Configuration, Register, Resolve

__all__ = ["MAX_REGISTERED", "Registry"]

MAX_REGISTERED: Final = 65536


class Registry:
    """The NIs of one bonding net, whose first slaves are all on the net `first`."""

    def __init__(self, first: Net) -> None:
        self._first = first
        self._entries: dict[Nid, tuple[int, Configuration]] = {}
        self._registered_by: dict[Nid, Nid] = {}  # what each slave registered last: it serves one bonding NI
        self.lookups: int = 0
        self.registrations: int = 0

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, nid: Nid) -> Configuration | None:
        """What is registered under nid."""
        entry = self._entries.get(nid)
        return entry[1] if entry is not None else None

    def register(self, register: Register, sender: Nid) -> Answer:
        """Take a registration that came from the NID `sender`."""
        self.registrations += 1
        found = register.configuration
        status = self._judge(found, sender)
        if not status:
            known = self._entries.get(found.nid)
            if known is None or not is_older(register.incarnation, known[0]):
                self._entries[found.nid] = (register.incarnation, found)
                before = self._registered_by.get(sender, found.nid)
                if before != found.nid:
                    self._entries.pop(before, None)
                self._registered_by[sender] = found.nid
        return Answer(register.request, found.nid, status, register.incarnation)

    def _judge(self, found: Configuration, sender: Nid) -> int:
        if all(one.nid != sender for one in found.slaves):
            return errno.EACCES
        if found.slaves[0].nid.net != self._first:
            return errno.EINVAL
        if found.nid not in self._entries and len(self._entries) >= MAX_REGISTERED:
            return errno.ENOSPC
        return 0

    def resolve(self, question: Resolve) -> Answer:
        """Answer a question."""
        self.lookups += 1
        entry = self._entries.get(question.nid)
        if entry is None:
            return Answer(question.request, question.nid, errno.ENOENT)
        return Answer(question.request, question.nid, 0, *entry)

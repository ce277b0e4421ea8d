"""Process ids: which LNet process on a NID (spec wire-lnet.md §1, §2.3)."""

from __future__ import annotations

from typing import NamedTuple

from ulnet.nid.errors import NidError, shown
from ulnet.nid.nid import Nid

__all__ = ["LNET_PID", "PID_ANY", "PID_USER_FLAG", "ProcessId"]

LNET_PID = 12345
PID_ANY = 0xFFFFFFFF
PID_USER_FLAG = 0x80000000  # set by the receiver for peers from an unprivileged TCP port


class ProcessId(NamedTuple):
    """`12345-10.0.0.1@tcp`."""

    nid: Nid
    pid: int = LNET_PID

    @classmethod
    def parse(cls, text: str) -> ProcessId:
        """The process that text names; without `<pid>-` it is LNet's own."""
        head, dash, rest = text.partition("-")
        if not dash:
            return cls(Nid.parse(text))
        if head == "LNET_PID_ANY":
            return cls(Nid.parse(rest), PID_ANY)
        digits = head.removeprefix("U")
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 10 or int(digits) >= PID_USER_FLAG:
            raise NidError(
                f"process id {shown(text)}: {shown(head)} is not a pid; write a number, U and a number, "
                "or LNET_PID_ANY before the dash, such as 12345-10.0.0.1@tcp"
            )
        return cls(Nid.parse(rest), int(digits) | (PID_USER_FLAG if head.startswith("U") else 0))

    def __str__(self) -> str:
        if self.pid == PID_ANY:
            return f"LNET_PID_ANY-{self.nid}"
        user = "U" if self.pid & PID_USER_FLAG else ""
        return f"{user}{self.pid & ~PID_USER_FLAG}-{self.nid}"

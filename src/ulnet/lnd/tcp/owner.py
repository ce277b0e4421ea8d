"""What a `Reader` needs of the connection that it reads for."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Owner"]


class Owner(Protocol):
    """The connection that a `Reader` reads for."""

    def heard(self) -> None:
        """Something comes by it, as nothing did since something came by another one."""

    def acknowledge_to_peer(self, cookie: int) -> bool:
        """Send a zero-copy acknowledgement; False if that is not to be, and everything is closed."""

    def acknowledged(self, cookie: int) -> bool:
        """The peer acknowledges a zero-copy request; False if it is none of ours."""

    def violated(self, text: str, unread: bool) -> int:
        """The peer broke the protocol; -1, as a position that says closed."""

    def ended(self) -> None:
        """The peer closed the connection."""

    def receive_failed(self, number: int) -> None:
        """The socket failed."""

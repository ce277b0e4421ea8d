"""The tunables of an NI: what words, files, parameters, documents, differences and checks know of each.

`NetTunables` and `LndTunables` of the core have a field for each.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["DEFAULT", "TUNABLES", "Tunable"]

DEFAULT: Final = -1  # stands for the default of any tunable


class Tunable(NamedTuple):
    """A tunable of an NI. `default` is None where the host decides; `zero`: 0 stands for the default, too.

    `words` are the commands of lnetctl with an option for it, `parameter` is the name in ksocklnd; `driver`:
    it is one of the driver, not of the net; `live`: an NI changes it while it runs. `names` are words for its
    values from 0 on; `own`: kernel nodes have none, so it is shown where it is not the default.
    """

    help: str
    default: int | None
    most: int = 2**31 - 1
    metavar: str = "N"
    driver: bool = False
    live: bool = False
    zero: bool = False
    words: tuple[str, ...] = ("net add",)
    parameter: str = ""
    names: tuple[str, ...] = ()
    own: bool = False

    def shown(self, value: int) -> int | str:
        """A value as documents have it."""
        return self.names[value] if 0 <= value < len(self.names) else value

    def read(self, text: str) -> int | None:
        """The value of that name; None if it is none."""
        return self.names.index(text) if text in self.names else None


TUNABLES: Final = {
    "peer_timeout": Tunable(
        "seconds for which a router takes a next hop for dead (180)", 180, metavar="S", live=True
    ),
    "peer_credits": Tunable("messages in flight to one peer NI (8)", 8, zero=True),
    "peer_buffer_credits": Tunable("router buffers for one peer (0: peer-credits)", 0),
    "credits": Tunable("messages in flight over one NI (256)", 256, zero=True),
    "conns_per_peer": Tunable(
        *("TCP connections of each type, 0 to 127 (0: by speed)", None, 127),
        driver=True,
        live=True,
        zero=True,
        words=("net add", "net set"),
    ),
    "timeout": Tunable(
        "seconds for an attempt", 50, driver=True, live=True, zero=True, words=(), parameter="sock_timeout"
    ),
    "tos": Tunable("IP's type of service, 0 to 255 (-1: unset)", -1, 255, driver=True, live=True),
    "security": Tunable(
        *("secured connections: off, offer (with who can), require", 0, 2, "WHAT"),
        driver=True,
        live=True,
        names=("off", "offer", "require"),
        own=True,
        words=("net add", "net set"),
    ),
}

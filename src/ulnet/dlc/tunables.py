"""The tunables of an NI: what words, files, parameters, documents, differences and checks know of each.

`NetTunables` and `LndTunables` of the core have a field for each.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["DEFAULT", "TUNABLES", "Tunable"]

_TCP: Final = 2  # as in `NetType`, whose room would be loaded at each start of lnetctl
_O2IB: Final = 5

DEFAULT: Final = -1  # stands for the default of any tunable


class Tunable(NamedTuple):
    """A tunable of an NI. `default` is None where the host decides; `zero`: 0 stands for the default, too.

    `words` are the commands of lnetctl with an option for it, `parameter` and `ko2iblnd` the names in these
    modules; `driver`: it is one of the driver, not of the net, and of nets of these types; `live`: an NI
    changes it while it runs; `flag`: it is true or false in documents. `names` are words for its values from
    0 on; `own`: kernel nodes have none, so it is shown where it is not the default.
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
    ko2iblnd: str = ""
    nets: tuple[int, ...] = (_TCP, _O2IB)
    flag: bool = False
    names: tuple[str, ...] = ()
    own: bool = False

    def shown(self, value: int) -> int | bool | str:
        """A value as documents have it."""
        if self.flag:
            return bool(value)
        return self.names[value] if 0 <= value < len(self.names) else value

    def read(self, word: str) -> int | None:
        """The value of that name; None if it is none."""
        return self.names.index(word) if word in self.names else None

    def is_of(self, kind: int) -> bool:
        """Whether nets of that type have it; those of other packages have what TCP has."""
        return kind in self.nets or (kind != _O2IB and _TCP in self.nets)


def _of_o2ib(
    help: str,
    default: int | None,
    *,
    most: int = 2**31 - 1,
    zero: bool = False,
    flag: bool = False,
    name: str = "",
) -> Tunable:
    """A tunable that o2ib nets alone have, in files and module parameters."""
    return Tunable(
        help, default, most, driver=True, zero=zero, words=(), ko2iblnd=name, nets=(_O2IB,), flag=flag
    )


TUNABLES: Final = {
    "peer_timeout": Tunable(
        "seconds for which a router takes a next hop for dead (180)", 180, metavar="S", live=True
    ),
    "peer_credits": Tunable("messages in flight to one peer NI (8)", 8, zero=True),
    "peer_buffer_credits": Tunable("router buffers for one peer (0: peer-credits)", 0),
    "credits": Tunable("messages in flight over one NI (256)", 256, zero=True),
    "peercredits_hiw": _of_o2ib(
        "o2ib: credits owed that are returned by themselves (half of peer_credits)",
        None,
        zero=True,
        name="peer_credits_hiw",
    ),
    "concurrent_sends": _of_o2ib(
        "o2ib: messages posted on a connection and not completed (peer_credits)", None, zero=True
    ),
    "map_on_demand": _of_o2ib("o2ib: of kernel nodes; without effect", 1, most=256, flag=True),
    "fmr_pool_size": _of_o2ib("o2ib: of kernel nodes; without effect", 512),
    "fmr_flush_trigger": _of_o2ib("o2ib: of kernel nodes; without effect", 384),
    "fmr_cache": _of_o2ib("o2ib: of kernel nodes; without effect", 1),
    "ntx": _of_o2ib("o2ib: messages on connections that are no answers (512)", 512),
    "conns_per_peer": Tunable(
        *("connections, with TCP of each type, 0 to 127 (0: one, with TCP by speed)", None, 127),
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
        words=("net add", "net set"),
        nets=(_TCP,),
        names=("off", "offer", "require"),
        own=True,
    ),
}

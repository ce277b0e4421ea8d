"""The tunables of an NI: what words, files, parameters, differences and checks know of each."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["TUNABLES", "Tunable"]


class Tunable(NamedTuple):
    """A tunable of an NI. `default` is None where the host decides, `-1` stands for the default.

    `option` and `help` are lnetctl's, `parameter` is the name in ksocklnd; `driver`: it is one of the driver,
    not of the net; `live`: an NI changes it while it runs.
    """

    help: str
    default: int | None
    most: int = 2**31 - 1
    metavar: str = "N"
    driver: bool = False
    live: bool = False
    option: bool = True
    parameter: str = ""


TUNABLES: Final = {
    "peer_timeout": Tunable(
        "seconds for which a router takes a next hop for dead (180)", 180, metavar="S", live=True
    ),
    "peer_credits": Tunable("messages in flight to one peer NI (8)", 8),
    "peer_buffer_credits": Tunable("router buffers for one peer (0: peer-credits)", 0),
    "credits": Tunable("messages in flight over one NI (256)", 256),
    "conns_per_peer": Tunable(
        "TCP connections of each type, 0 to 127 (0: by speed)", None, 127, driver=True, live=True
    ),
    "timeout": Tunable(
        "seconds for an attempt", 50, driver=True, live=True, option=False, parameter="sock_timeout"
    ),
    "tos": Tunable("IP's type of service, 0 to 255 (-1: unset)", -1, 255, driver=True, live=True),
}

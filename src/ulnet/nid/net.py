"""Net types and nets: `tcp`, `o2ib3` (spec wire-lnet.md §1, §2.1, §2.3)."""

from __future__ import annotations

from enum import IntEnum

from ulnet.nid.errors import NidError, shown

__all__ = ["ANY_NET", "IP_TYPES", "LO_NET", "NAMES", "Net", "NetType", "split_net"]


class NetType(IntEnum):
    """Net type numbers that have a name."""

    TCP = 2
    O2IB = 5
    LO = 9
    GNI = 13
    GIP = 14
    PTLF = 15
    KFI = 16
    EFA = 18
    BXI3F = 19
    BOND = 176  # ours: ADDR@bondN over other NIs (docs/wire-bond.md)


# In the order in which LNet tries them: a net's text is matched by prefix.
NAMES: dict[str, int] = {
    "lo": NetType.LO.value,
    "tcp": NetType.TCP.value,
    "o2ib": NetType.O2IB.value,
    "gni": NetType.GNI.value,
    "gip": NetType.GIP.value,
    "ptlf": NetType.PTLF.value,
    "kfi": NetType.KFI.value,
    "efa": NetType.EFA.value,
    "bxi3f": NetType.BXI3F.value,
    "bond": NetType.BOND.value,
}
_NAME_OF = {number: name for name, number in NAMES.items()}

# Types whose addresses are written as IP addresses; the others are numbers. A bond's address is that of
# its first slave, so it may be either.
IP_TYPES = frozenset(
    {NetType.TCP.value, NetType.O2IB.value, NetType.GIP.value, NetType.EFA.value, NetType.BOND.value}
)

_MAX_TYPE = 0xFF
_MAX_NUMBER = 0xFFFF


def split_net(text: str) -> tuple[int, str]:
    """The net type that text begins with, and what follows its name."""
    for name, number in NAMES.items():
        if text.startswith(name):
            return number, text[len(name) :]
    raise NidError(
        f"net {shown(text)} has no known type; write one of {', '.join(NAMES)}, "
        "with a number if it is not 0, such as tcp1"
    )


class Net(int):
    """A net: type << 16 | number, as LNet writes it in 32 bits."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Net:
        """The net that text names: `tcp`, `tcp0` (the same), `o2ib3`, `lo`."""
        net_type, rest = split_net(text)
        if not rest:
            return cls.of(net_type, 0)
        if net_type == NetType.LO:
            raise NidError(f"net {shown(text)}: the loopback net has no number; write lo")
        if not (rest.isascii() and rest.isdigit()) or len(rest) > 9 or int(rest) > _MAX_NUMBER:
            raise NidError(
                f"net {shown(text)}: after {_NAME_OF[net_type]} comes a number from 0 to {_MAX_NUMBER} "
                f"or nothing, such as {_NAME_OF[net_type]}1"
            )
        return cls.of(net_type, int(rest))

    @classmethod
    def of(cls, net_type: int, number: int = 0) -> Net:
        """The net of that type and number."""
        if not 0 <= net_type <= _MAX_TYPE:
            raise NidError(f"net type {net_type} does not exist; types are 0 to {_MAX_TYPE}")
        if not 0 <= number <= _MAX_NUMBER:
            raise NidError(f"net number {number} does not exist; numbers are 0 to {_MAX_NUMBER}")
        return cls(net_type << 16 | number)

    @property
    def type(self) -> int:
        """The net type; compares with NetType."""
        return self >> 16

    @property
    def number(self) -> int:
        """The net number."""
        return self & _MAX_NUMBER

    @property
    def is_ip(self) -> bool:
        """Whether addresses on this net are IP addresses."""
        return self >> 16 in IP_TYPES

    def __str__(self) -> str:
        name = _NAME_OF.get(self >> 16)
        number = self & _MAX_NUMBER
        if name is None:
            return f"<{self >> 16}:{number}>"
        return f"{name}{number}" if number else name

    def __repr__(self) -> str:
        return f"Net({str(self)!r})"

    def __format__(self, form: str, /) -> str:
        return format(str(self), form)  # f"{net}" is the text, not the integer


ANY_NET = Net(0xFFFFFFFF)
LO_NET = Net.of(NetType.LO)

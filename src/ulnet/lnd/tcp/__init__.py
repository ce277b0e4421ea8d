"""TCP, compatible with kernel LNet's ksocklnd."""

from ulnet.lnd.tcp.driver import TcpLnd
from ulnet.lnd.tcp.params import TcpParams

__all__ = ["TcpLnd", "TcpParams"]

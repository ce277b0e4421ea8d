"""The o2ib driver: LNet over InfiniBand and RoCE (docs/design/o2ib.md)."""

from ulnet.lnd.o2ib.driver import O2ibLnd
from ulnet.lnd.o2ib.ni import NiState
from ulnet.lnd.o2ib.params import O2ibParams

__all__ = ["NiState", "O2ibLnd", "O2ibParams"]

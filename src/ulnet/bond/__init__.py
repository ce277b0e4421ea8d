"""Bonding: one NI, `ADDR@bondN`, made of other NIs (docs/wire-bond.md, docs/design/bonding.md)."""

from ulnet.bond.config import BondConfig, bond_config
from ulnet.bond.driver import BondLnd

__all__ = ["BondConfig", "BondLnd", "bond_config"]

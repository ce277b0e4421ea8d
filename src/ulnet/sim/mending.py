"""Everything made as the plan began: what a run that was broken on purpose must recover after."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ulnet.bond import BondLnd
from ulnet.core.access import EVERYBODY
from ulnet.dlc.errors import DlcError
from ulnet.dlc.model_bond import BondSwitch

if TYPE_CHECKING:
    from ulnet.sim.node import SimNode
    from ulnet.sim.run import Run

__all__ = ["mend", "repair"]


def repair(run: Run) -> None:
    """All cables are in and lose nothing, and all partitions are over; nodes stay as they are."""
    run.sim.heal()
    for host in run.sim.fabric.hosts.values():
        for port in host.ports.values():
            run.sim.link_up(port)
            host.restore_device(port)
            port.params = replace(port.params, loss=0.0)


def mend(run: Run) -> None:
    """Besides, dead nodes start, all have the NIs and the YAML again they were made with, and deny nobody."""
    repair(run)
    for node in run.sim.nodes.values():
        if node.alive:
            node.configure_again()
            _switch_on(node)
        else:
            node.restart()
        if node.core.access:
            node.loop.enter(node.core.set_access, EVERYBODY)


def _switch_on(node: SimNode) -> None:
    """Slaves of bonding NIs that were switched off."""
    bonds = node.node.driver(BondLnd).bonds.values() if node.node.running else ()
    for bond in list(bonds):
        for slave in bond.config.slaves:
            try:
                node.request(BondSwitch(str(bond.ni.nid), str(slave), True))
            except DlcError as refused:
                node.sim.note(f"refused {refused}")

"""Many nodes on a virtual network with one clock and one seed: every race can be replayed."""

from ulnet.sim.cables import LinkParams
from ulnet.sim.errors import Broken, NotQuiet, PlanError, SimError
from ulnet.sim.node import SimNode
from ulnet.sim.simulation import Simulation
from ulnet.sim.traffic import Inbox, Operation

__all__ = [
    "Broken",
    "Inbox",
    "LinkParams",
    "NotQuiet",
    "Operation",
    "PlanError",
    "SimError",
    "SimNode",
    "Simulation",
]

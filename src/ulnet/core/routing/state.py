"""Whether this node routes, as a table: (state, input) → (action, next state) (spec routing.md §4)."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final

__all__ = ["TRANSITIONS", "RoutingAction", "RoutingInput", "RoutingState"]


class RoutingState(IntEnum):
    """The number that `routing show` prints as `enable`."""

    DISABLED = 0
    ENABLED = 1
    STOPPING = 2  # peers are told, messages still pass
    STARTING = 3  # messages pass, peers are not told yet


class RoutingInput(StrEnum):
    """What may happen."""

    ENABLE = "routing 1"
    DISABLE = "routing 0"
    SETTLED = "all who check this node have done so since"
    DRAINED = "nothing passes through any more, or time is up"


class RoutingAction(StrEnum):
    """What is done about it."""

    NOTHING = "nothing"
    OPEN = "make the buffers; messages pass from now on"
    ANNOUNCE = "tell peers that this node routes"
    RETRACT = "tell peers that this node routes no more"
    CLOSE = "drop what waits; messages pass no more"
    STAY = "messages pass on"


TRANSITIONS: Final[dict[tuple[RoutingState, RoutingInput], tuple[RoutingAction, RoutingState]]] = {
    (RoutingState.DISABLED, RoutingInput.ENABLE): (RoutingAction.OPEN, RoutingState.STARTING),
    (RoutingState.DISABLED, RoutingInput.DISABLE): (RoutingAction.NOTHING, RoutingState.DISABLED),
    (RoutingState.STARTING, RoutingInput.ENABLE): (RoutingAction.NOTHING, RoutingState.STARTING),
    (RoutingState.STARTING, RoutingInput.DISABLE): (RoutingAction.RETRACT, RoutingState.STOPPING),
    (RoutingState.STARTING, RoutingInput.SETTLED): (RoutingAction.ANNOUNCE, RoutingState.ENABLED),
    (RoutingState.ENABLED, RoutingInput.ENABLE): (RoutingAction.NOTHING, RoutingState.ENABLED),
    (RoutingState.ENABLED, RoutingInput.DISABLE): (RoutingAction.RETRACT, RoutingState.STOPPING),
    (RoutingState.STOPPING, RoutingInput.ENABLE): (RoutingAction.STAY, RoutingState.STARTING),
    (RoutingState.STOPPING, RoutingInput.DISABLE): (RoutingAction.NOTHING, RoutingState.STOPPING),
    (RoutingState.STOPPING, RoutingInput.DRAINED): (RoutingAction.CLOSE, RoutingState.DISABLED),
}

"""What each status of a finished message means for the health of both ends, and whether it is resent.

Spec health.md §3. A message that may have reached the peer is reported, never resent.
"""

from __future__ import annotations

from typing import NamedTuple

from ulnet.core.status import HealthStatus

__all__ = ["RULES", "RULES_OF_ANSWERS", "Rule"]


class Rule(NamedTuple):
    """`local`, `peer`: whose health suffers; `resend`: whether another attempt is safe and may help."""

    local: bool
    peer: bool
    resend: bool


_LOCAL = Rule(local=True, peer=False, resend=True)
_BY_STATUS = {
    HealthStatus.OK: Rule(local=False, peer=False, resend=False),
    HealthStatus.LOCAL_INTERRUPT: _LOCAL,
    HealthStatus.LOCAL_DROPPED: _LOCAL,
    HealthStatus.LOCAL_ABORTED: _LOCAL,
    HealthStatus.LOCAL_NO_ROUTE: _LOCAL,
    HealthStatus.LOCAL_ERROR: Rule(local=True, peer=False, resend=False),
    HealthStatus.LOCAL_TIMEOUT: _LOCAL,
    HealthStatus.REMOTE_ERROR: Rule(local=False, peer=True, resend=False),
    HealthStatus.REMOTE_DROPPED: Rule(local=False, peer=True, resend=True),
    HealthStatus.REMOTE_TIMEOUT: Rule(local=False, peer=True, resend=False),
    HealthStatus.NETWORK_TIMEOUT: Rule(local=True, peer=True, resend=False),
}
RULES = tuple(_BY_STATUS[status] for status in HealthStatus)
# A peer that takes no answer proves nothing about our NI.
_OF_ANSWERS = {
    **_BY_STATUS,
    HealthStatus.NETWORK_TIMEOUT: _BY_STATUS[HealthStatus.REMOTE_TIMEOUT],
}
RULES_OF_ANSWERS = tuple(_OF_ANSWERS[status] for status in HealthStatus)

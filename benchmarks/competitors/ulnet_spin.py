"""ulnet that looks again for a while before it sleeps: `spin` at its most."""

from __future__ import annotations

from functools import partial

from competitors import ulnet_base, ulnet_node
from work import Measured, Work

serve = partial(ulnet_base.serve, spin=True)


def drive(work: Work, address: str) -> Measured:
    """See `ulnet_base.drive_with`."""
    return ulnet_base.drive_with(work, address, ulnet_node.send, spin=True)

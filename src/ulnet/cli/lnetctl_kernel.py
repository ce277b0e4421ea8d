"""Commands that are about the kernel: one line that says why there is nothing to do, and the errno."""

from __future__ import annotations

import errno
import sys
from typing import TYPE_CHECKING

from ulnet.cli.lnetctl_words import Command

if TYPE_CHECKING:
    from ulnet.cli.lnetctl_options import Parsed

__all__ = ["KERNEL_ONLY", "say_why"]

_WHY = {
    "service-id": (
        errno.ENOENT,
        "cannot get service port: No such file or directory (-2): no kernel module tells it; o2ib nets of "
        "ulnet listen at 987, or at the `service` that lnetd was given",
    ),
    "setup-mrrouting": (
        errno.EOPNOTSUPP,
        "nothing is set up: ulnet binds its connections to their interfaces and needs no kernel routes; "
        "'ulnet doctor' tells what kernel nodes would need",
    ),
    "setup-sysctl": (
        errno.EOPNOTSUPP,
        "nothing is set up: 'ulnet doctor' tells which kernel settings would help, and how to change them",
    ),
}

KERNEL_ONLY = (
    Command(
        ("service-id",),
        "the kernel module's service for o2ib: there is none here",
        examples=("lnetctl service-id",),
        action="kernel_service-id",
    ),
    Command(
        ("setup-mrrouting",),
        "kernel routes by interface: none are needed here",
        examples=("lnetctl setup-mrrouting",),
        action="kernel_setup-mrrouting",
    ),
    Command(
        ("setup-sysctl",),
        "kernel settings: none are changed from here",
        examples=("lnetctl setup-sysctl",),
        action="kernel_setup-sysctl",
    ),
)


def say_why(name: str, parsed: Parsed, socket_path: str | None) -> int:
    """The exit status, in the real tool's form of these errors."""
    number, text = _WHY[name]
    sys.stderr.write(f'error:\n    msg: "{text}"\n')
    return 256 - number

"""What a program that took over lnetd would try on its host: each attempt, and whether it was refused.

`make install-trial` runs this in place of lnetd under its unit, where all has to be refused, and as root of
that machine, where most of it works. It needs Python alone, and leaves everything as it was.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
PTRACE_TRACEME = 0
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
UNAME26 = 0x20000  # a personality
KEYCTL, KEYCTL_JOIN = 250, 1  # of x86-64


def main() -> None:
    """Print each attempt's outcome: null, or why it was refused."""
    json.dump({attempt.__name__: outcome(attempt) for attempt in ATTEMPTS}, sys.stdout)


def outcome(attempt: Callable[[], object]) -> str | None:
    """Make an attempt in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        said = b""
        try:
            attempt()
        except Exception as refused:
            said = f"{type(refused).__name__}: {refused}".encode()
        os.write(writing, said)
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if status:
        return f"it was ended: {status}"
    return said.decode() or None


def call(name: str, *words: int | bytes | None) -> None:
    """Call a function of libc. Raises OSError."""
    if getattr(LIBC, name)(*words) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def write_below(folder: str) -> None:
    """Make a file there, and take it away."""
    file = Path(folder, "takeover")
    file.write_text("")
    file.unlink()


def write_configuration() -> None:
    """What lnetd does at its next start."""
    with open("/etc/lnet.conf", "a"):
        pass


def write_etc() -> None:
    """For instance a unit."""
    write_below("/etc/systemd/system")


def write_programs() -> None:
    """What others run."""
    write_below("/usr/bin")


def write_state() -> None:
    """What others keep."""
    write_below("/var/lib")


def write_where_all_may() -> None:
    """Where other users' programs look."""
    write_below("/var/tmp")
    if " /var/tmp " in Path("/proc/self/mountinfo").read_text():
        raise PermissionError("it is a folder of the service alone")


def read_passwords() -> None:
    """Of all users."""
    Path("/etc/shadow").read_text()


def read_homes() -> None:
    """Root's is one."""
    os.listdir("/root")


def see_processes_of_others() -> None:
    """With their arguments."""
    Path("/proc/1/cmdline").read_text()


def signal_others() -> None:
    """All of them may be."""
    os.kill(1, 0)


def become_root() -> None:
    """As who has started it."""
    os.setuid(0)


def trace() -> None:
    """As debuggers do."""
    call("ptrace", PTRACE_TRACEME, 0, None, None)


def mount() -> None:
    """Something in the place of /mnt."""
    call("mount", b"none", b"/mnt", b"tmpfs", 0, None)
    call("umount2", b"/mnt", 0)


def make_mount_namespace() -> None:
    """To mount in."""
    call("unshare", CLONE_NEWNS)


def make_user_namespace() -> None:
    """To be root in: a way to much of the kernel."""
    call("unshare", CLONE_NEWUSER)


def read_all_packets() -> None:
    """And send some that are not IP."""
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()


def use_other_protocols() -> None:
    """For instance that of virtual machines."""
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()


def change_interfaces() -> None:
    """Take one down, or give it an address."""
    subprocess.run(["ip", "link", "set", "lo", "mtu", "65536"], check=True, capture_output=True)


def write_code() -> None:
    """Into memory, and run it."""
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()


def leave_a_program_with_rights() -> None:
    """Which others run."""
    file = Path("/tmp/takeover")
    file.write_text("")
    try:
        file.chmod(0o4755)
    finally:
        file.unlink()


def make_a_device() -> None:
    """For instance of a disk."""
    device = "/tmp/takeover"
    os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    os.unlink(device)


def name_the_host() -> None:
    """Anew."""
    socket.sethostname(socket.gethostname())


def change_the_kernels_settings() -> None:
    """For instance whether it routes."""
    setting = Path("/proc/sys/net/ipv4/ip_forward")
    setting.write_text(setting.read_text())


def set_the_clock() -> None:
    """For others' certificates."""
    time.clock_settime(time.CLOCK_REALTIME, time.time())


def run_before_all_others() -> None:
    """By the priority of real time."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def change_the_personality() -> None:
    """Of the process, for other holes."""
    call("personality", UNAME26)


def use_the_keyring() -> None:
    """Of the kernel."""
    call("syscall", KEYCTL, KEYCTL_JOIN, None)


def leave_its_group() -> None:
    """Of processes, by which its resources are bounded."""
    group = Path("/sys/fs/cgroup/takeover")
    group.mkdir()
    group.rmdir()


def order_systemd() -> None:
    """As administrators do."""
    subprocess.run(["systemctl", "daemon-reload"], check=True, capture_output=True)


ATTEMPTS: tuple[Callable[[], None], ...] = (
    write_configuration, write_etc, write_programs, write_state, write_where_all_may, read_passwords,
    read_homes, see_processes_of_others, signal_others, become_root, trace, mount, make_mount_namespace,
    make_user_namespace, read_all_packets, use_other_protocols, change_interfaces, write_code,
    leave_a_program_with_rights, make_a_device, name_the_host, change_the_kernels_settings, set_the_clock,
    run_before_all_others, change_the_personality, use_the_keyring, leave_its_group, order_systemd,
)  # fmt: skip

if __name__ == "__main__":
    main()

"""The flat namespace of the library, and errors by class."""

from __future__ import annotations

import copy
import errno
import pickle
import socket
import subprocess
import sys

import pytest

import ulnet
from support.ports import free_port
from ulnet.rpc import RpcError


def test_each_public_name_is_there_and_listed() -> None:
    for name in ulnet.__all__:
        assert getattr(ulnet, name) is not None
        assert name in dir(ulnet)
    with pytest.raises(AttributeError, match="no attribute 'Nodes'"):
        ulnet.Nodes  # noqa: B018


def test_importing_the_package_loads_none_of_it() -> None:
    program = "import sys, ulnet; print([name for name in sys.modules if name.startswith('ulnet.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("number", "kind", "builtin"),
    [
        (errno.ETIMEDOUT, ulnet.LNetTimeoutError, TimeoutError),
        (errno.ECONNREFUSED, ulnet.LNetConnectionError, ConnectionError),
        (errno.ECONNRESET, ulnet.LNetConnectionError, ConnectionError),
        (errno.EHOSTUNREACH, ulnet.LNetConnectionError, OSError),
        (errno.EACCES, ulnet.LNetPermissionError, PermissionError),
    ],
)
def test_an_error_has_the_class_of_its_number(
    number: int, kind: type[Exception], builtin: type[Exception]
) -> None:
    error = ulnet.LNetError(number, "10.0.0.1@tcp: the reason")
    assert type(error) is kind
    assert isinstance(error, builtin)
    for one in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(one) is kind
        assert (one.errno, one.text, str(one)) == (number, error.text, error.text)


async def test_what_the_system_refuses_is_an_error_of_the_system() -> None:
    """A program that catches OSError around its set-up catches what a node is refused as well."""
    port = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        async with ulnet.Node(
            tcp=ulnet.TcpParams(accept="all", reserved_ports=False, accept_port=port)
        ) as node:
            with pytest.raises(OSError, match=str(port)) as refused:
                node.add_ni("127.0.0.1@tcp")
    assert type(refused.value) is ulnet.LNetSystemError
    assert refused.value.errno == errno.EADDRINUSE


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENODEV, errno.ENOSPC, errno.EADDRINUSE])
def test_what_rules_of_lnet_refuse_is_no_error_of_the_system(number: int) -> None:
    error = ulnet.LNetError(number, "net tcp has no interface eth7")
    assert type(error) is ulnet.LNetError
    assert OSError not in type(error).__mro__


async def test_a_rule_of_lnet_that_has_a_number_of_the_system_is_no_oserror() -> None:
    """More NIs than max_interfaces is ENOSPC, and no disk is full."""
    async with ulnet.Node(tcp=ulnet.TcpParams(reserved_ports=False)) as node:
        node.core.settings.max_interfaces = 1  # the loopback NI
        with pytest.raises(ulnet.LNetError, match="max_interfaces") as refused:
            node.add_ni("127.0.0.1@tcp")
    assert refused.value.errno == errno.ENOSPC
    assert OSError not in type(refused.value).__mro__


def test_other_errors_are_of_no_class_of_pythons() -> None:
    error = ulnet.LNetError(errno.EINVAL, "portal 99: portals are numbered 0..63")
    assert type(error) is ulnet.LNetError
    assert OSError not in type(error).__mro__


def test_an_error_of_a_class_of_its_own_keeps_it() -> None:
    error = RpcError(errno.ETIMEDOUT, "read: no answer in time", "no")
    assert type(error) is RpcError
    assert (error.errno, str(error), error.executed) == (errno.ETIMEDOUT, "read: no answer in time", "no")


async def test_what_came_too_late_and_what_no_way_leads_to_are_errors_of_python() -> None:
    """One `except TimeoutError` takes them and those of asyncio."""
    with socket.create_server(("127.0.1.2", 0)) as silent:
        port = silent.getsockname()[1]
        tcp = ulnet.TcpParams(accept="all", accept_port=port, reserved_ports=False)
        async with ulnet.Node(tcp=tcp) as node:
            node.add_ni("127.0.1.1@tcp")
            with pytest.raises(TimeoutError, match="silent"):
                await node.ping("127.0.1.2@tcp", timeout=0.3)
            with pytest.raises(ConnectionError, match="no route"):
                await node.put("127.0.1.2@tcp7", 30, 1, b"x")

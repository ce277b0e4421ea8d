"""The back end that Dask knows: it connects, it listens, it reads addresses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from distributed.comm.addressing import parse_host_port, unparse_host_port
from distributed.comm.core import BaseListener, CommClosedError, Connector
from distributed.comm.registry import Backend
from distributed.utils import ensure_ip, get_ip

from ulnet.core.status import LNetError
from ulnet.dask.comm import UlnetComm
from ulnet.dask.endpoint import PREFIX, Endpoint, endpoint_for, present_endpoint

__all__ = ["UlnetBackend", "UlnetConnector", "UlnetListener"]

_log = logging.getLogger("distributed.comm.ulnet")
_WILDCARDS = ("", "0.0.0.0", "::")


def _refuse_if_encrypted(address: str, arguments: dict[str, Any]) -> None:
    if arguments.get("require_encryption"):
        raise RuntimeError(
            f"encryption required by Dask configuration, refusing communication from/to {PREFIX + address!r}"
        )


Handler = Callable[[UlnetComm], Awaitable[None]]


class UlnetConnector(Connector):
    """Connects to `HOST:PORT`."""

    async def connect(self, address: str, deserialize: bool = True, **arguments: Any) -> UlnetComm:
        """A comm. Raises OSError, ValueError for what is no address."""
        _refuse_if_encrypted(address, arguments)
        host, port = parse_host_port(address)
        ip = ensure_ip(host)
        try:
            endpoint, _ = await endpoint_for(get_ip(ip))
            return await endpoint.connect(ip, port, deserialize)
        except LNetError as failed:
            raise OSError(failed.errno, f"{PREFIX}{address}: {failed.text}") from failed


class UlnetListener(BaseListener):
    """Takes comms at `HOST:PORT`; port 0 is any."""

    prefix = PREFIX

    def __init__(
        self,
        address: str,
        comm_handler: Handler,
        deserialize: bool = True,
        allow_offload: bool = True,
        default_host: str | None = None,
        default_port: int = 0,
        **arguments: Any,
    ) -> None:
        super().__init__()
        _refuse_if_encrypted(address, arguments)
        self._host, self._port = parse_host_port(address, default_port)
        self._default_host = default_host
        self._handler = comm_handler
        self._deserialize = deserialize
        self._allow_offload = allow_offload
        self._endpoint: Endpoint | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen. Raises OSError."""
        wild = self._host in _WILDCARDS
        ip = ensure_ip(self._default_host or get_ip()) if wild else ensure_ip(self._host)
        try:
            endpoint, self._host = await endpoint_for(ip, exactly=not wild and self._port != 0)
        except LNetError as failed:
            raise OSError(failed.errno, failed.text) from failed
        self._port = endpoint.listen(self._port, self._accept)
        self._endpoint = endpoint

    def stop(self) -> None:
        """Take nothing new. Dask ends those that are in their handshake."""
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            endpoint.listen_no_more(self._port)

    def _accept(self, comm: UlnetComm) -> None:
        comm.deserialize = self._deserialize
        comm.allow_offload = self._allow_offload
        task = asyncio.get_running_loop().create_task(self._serve(comm))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, comm: UlnetComm) -> None:
        if self._endpoint is None:
            comm.abort()
            return
        try:
            await self.on_connection(comm)
        except CommClosedError:
            _log.info("Connection from %s closed before handshake completed", comm.peer_address)
            return
        await self._handler(comm)

    def get_host_port(self) -> tuple[str, int]:
        """Where it listens."""
        return self._host, self._port

    @property
    def listen_address(self) -> str:
        """Where it listens, as a URI."""
        if self._endpoint is None:
            raise ValueError("invalid operation on a listener that is not started")
        return PREFIX + unparse_host_port(self._host, self._port)

    @property
    def contact_address(self) -> str:
        """Where it can be reached, as a URI."""
        return self.listen_address


class UlnetBackend(Backend):
    """`ulnet://HOST:PORT`: a process has the NID HOST@tcp, and serves PORT there."""

    def get_connector(self) -> UlnetConnector:
        """What connects."""
        return UlnetConnector()

    def get_listener(
        self,
        loc: str,
        handle_comm: Handler,
        deserialize: bool,
        **arguments: Any,
    ) -> UlnetListener:
        """What listens at an address without scheme."""
        return UlnetListener(loc, handle_comm, deserialize, **arguments)

    def get_address_host(self, loc: str) -> str:
        """Its host."""
        return parse_host_port(loc)[0]

    def get_address_host_port(self, loc: str) -> tuple[str, int]:
        """Its host and port."""
        return parse_host_port(loc)

    def resolve_address(self, loc: str) -> str:
        """The same with the IP address of its host."""
        host, port = parse_host_port(loc)
        return unparse_host_port(ensure_ip(host), port)

    def get_local_address_for(self, loc: str) -> str:
        """The own address towards that one, without port."""
        present = present_endpoint()
        if present is not None and present.ip:
            return unparse_host_port(present.ip, None)
        return unparse_host_port(get_ip(ensure_ip(parse_host_port(loc)[0])), None)

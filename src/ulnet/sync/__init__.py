"""Nodes, and requests and replies, for programs without asyncio (docs/rpc.md).

Each node has a thread in which its event loop runs. Its methods wait for their result, and may be called
from any other thread.
"""

from ulnet.rpc import Answer, RpcError, Service
from ulnet.sync.client import Client, Stream
from ulnet.sync.inbox import Inbox
from ulnet.sync.node import Node
from ulnet.sync.server import Call, Server

__all__ = ["Answer", "Call", "Client", "Inbox", "Node", "RpcError", "Server", "Service", "Stream"]

"""Requests and replies, bulk of any size, and streams, above `ulnet.Node` (docs/design/rpc.md)."""

from ulnet.rpc.answer import Answer
from ulnet.rpc.call import Call
from ulnet.rpc.client import Client
from ulnet.rpc.errors import RpcError
from ulnet.rpc.server import Server
from ulnet.rpc.service import Service
from ulnet.rpc.stream import Stream
from ulnet.rpc.topic import Topic

__all__ = ["Answer", "Call", "Client", "RpcError", "Server", "Service", "Stream", "Topic"]

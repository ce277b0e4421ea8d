"""The object that a program uses: an LNet node on asyncio."""

from ulnet.node.attachment import Attachment
from ulnet.node.inbox import Inbox, Message
from ulnet.node.node import Node
from ulnet.node.operations import PingResult
from ulnet.node.watching import RailStatistics

__all__ = ["Attachment", "Inbox", "Message", "Node", "PingResult", "RailStatistics"]

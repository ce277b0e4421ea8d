"""A file that stands in for the machine's topology, to try things out on a smaller one."""

from __future__ import annotations

import errno
import os
from typing import Any

from ulnet.host.files import read_bounded
from ulnet.host.topology import NumaNode, Topology, number_list
from ulnet.host.values import HostError

__all__ = ["load_topology", "parse_topology"]

_LONGEST = 1 << 20
_KEYS = {"cpus", "distances", "interfaces"}
_SHAPE = (
    "write 'nodes:' with an item for each, such as '- {cpus: 0-3, distances: [10, 20], interfaces: [eth0]}'"
)


def load_topology(path: str) -> Topology:
    """The topology in a file. Raises HostError(EINVAL, or what the system says)."""
    try:
        text = read_bounded(path, _LONGEST)
    except OSError as error:
        raise HostError(error.errno or errno.EIO, f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise HostError(errno.EINVAL, f"{os.fspath(path)} is not UTF-8 text") from None
    try:
        return parse_topology(text)
    except HostError as bad:
        raise HostError(bad.errno, f"{path}: {bad.text}") from None


def parse_topology(text: str) -> Topology:
    """The topology that YAML text tells; nodes are numbered in their order. Raises HostError(EINVAL)."""
    import yaml  # late: a daemon without such a file does without

    if len(text) > _LONGEST:
        raise HostError(errno.EINVAL, f"a topology of more than {_LONGEST} characters: no machine needs that")
    try:
        content = yaml.load(text, Loader=yaml.BaseLoader)  # every scalar stays text
    except (yaml.YAMLError, RecursionError, ValueError) as bad:
        raise HostError(errno.EINVAL, f"this is not YAML: {bad}") from None
    if not isinstance(content, dict) or set(content) != {"nodes"} or not isinstance(content["nodes"], list):
        raise HostError(errno.EINVAL, f"this is no topology: {_SHAPE}")
    nodes: list[NumaNode] = []
    interfaces: dict[str, int] = {}
    for number, item in enumerate(content["nodes"]):
        if not isinstance(item, dict) or not set(item) <= _KEYS or "distances" not in item:
            raise HostError(errno.EINVAL, f"node {number} is not written as a node: {_SHAPE}")
        distances = tuple(_number(word, f"a distance of node {number}") for word in _words(item["distances"]))
        nodes.append(NumaNode(number, number_list(",".join(_words(item.get("cpus", ""))), "CPU"), distances))
        for name in _words(item.get("interfaces", "")):
            if interfaces.setdefault(name, number) != number:
                raise HostError(
                    errno.EINVAL, f"interface {name} is in nodes {interfaces[name]} and {number}: choose one"
                )
    return Topology(tuple(nodes), interfaces)


def _words(value: Any) -> list[str]:
    """A list of scalars, or one scalar with commas."""
    if isinstance(value, str):
        return [word.strip() for word in value.split(",") if word.strip()]
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return value
    raise HostError(errno.EINVAL, f"{str(value)[:40]!r} is neither a value nor a list of values: {_SHAPE}")


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 4):
        raise HostError(errno.EINVAL, f"{what} is {text[:20]!r}: write a number, 10 for the node itself")
    return int(text)

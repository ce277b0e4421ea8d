"""What only the operating system can tell: links, addresses, routes, NUMA nodes; as plain values."""

from ulnet.host.files import read_bounded
from ulnet.host.link_monitor import LinkMonitor
from ulnet.host.link_speed import link_speed
from ulnet.host.memory_node import memory_node_reader
from ulnet.host.netlink import device_node, first_address, link_named, link_with_address, links
from ulnet.host.partitions import divide
from ulnet.host.privileges import become, group_number
from ulnet.host.routes import source_address_for
from ulnet.host.topology import NumaNode, Topology, cpu_reader, number_text, placed, read_topology
from ulnet.host.topology_file import load_topology, parse_topology
from ulnet.host.values import Address, HostError, Link

__all__ = [
    "Address",
    "HostError",
    "Link",
    "LinkMonitor",
    "NumaNode",
    "Topology",
    "become",
    "cpu_reader",
    "device_node",
    "divide",
    "first_address",
    "group_number",
    "link_named",
    "link_speed",
    "link_with_address",
    "links",
    "load_topology",
    "memory_node_reader",
    "number_text",
    "parse_topology",
    "placed",
    "read_bounded",
    "read_topology",
    "source_address_for",
]

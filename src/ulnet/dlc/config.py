"""Configuration files: YAML sections become the same requests as command lines (spec lnetctl.md §4).

Keys that only a full export has (counters, states) are known and passed over; keys that nobody knows are
errors, all of them reported at once.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence

from ulnet.dlc.config_access import read_access
from ulnet.dlc.config_net import read_ip2nets_section, read_nets
from ulnet.dlc.config_node import (
    global_steps,
    read_buffers,
    read_discoveries,
    read_globals,
    read_numa,
    read_pings,
    read_policies,
    read_routes,
    read_routing,
    read_selections,
    read_statistics,
)
from ulnet.dlc.config_peer import read_peers, read_peers_by_nids
from ulnet.dlc.errors import ErrorItem
from ulnet.dlc.schema import Schema
from ulnet.dlc.settings import SETTINGS
from ulnet.dlc.steps import Config, Step, Verb, step_error
from ulnet.dlc.yaml_in import MapNode, Node, ScalarNode, YamlError, read_sections

__all__ = ["Config", "Step", "Verb", "read_config", "step_error"]

_SECTIONS: dict[str, Callable[[Schema, Node, Verb], Iterator[Step]]] = {
    "net": read_nets,
    "ip2nets": read_ip2nets_section,
    "route": read_routes,
    "routing": read_routing,
    "buffers": read_buffers,
    "peer": read_peers,
    "peers": read_peers_by_nids,
    "global": read_globals,
    "numa": read_numa,
    "udsp": read_policies,
    "selection": read_selections,
    "access": read_access,
    "statistics": read_statistics,
    "ping": read_pings,
    "discover": read_discoveries,
}
_AT_ONCE = frozenset({"ping", "discover"})  # all that `import --exec` looks at


def _lnd_timeout(sections: Sequence[tuple[ScalarNode, Node]]) -> str | None:
    """What an export says the time-out is that follows from its settings."""
    for key, node in sections:
        if key.text == "global" and isinstance(node, MapNode):
            for name, value in node.items:
                if name.text == "lnd_timeout" and isinstance(value, ScalarNode):
                    return value.text
    return None


def read_config(text: str, verb: Verb = "add") -> Config:
    """The requests of a file in its order, and all that is wrong with it.

    An item in which anything is wrong is no request, so that nothing of it is done. Who may do what comes
    first wherever it stands, and goes last, so that no net is open meanwhile.
    """
    schema = Schema(verb)
    steps: list[Step] = []
    try:
        sections = read_sections(text)
    except YamlError as bad:
        return Config([], [ErrorItem(verb, "import", -errno.EINVAL, str(bad))], [bad.line])
    schema.lnd_timeout = _lnd_timeout(sections)
    sections.sort(key=lambda section: (section[0].text == "access") is (verb == "del"))
    for key, node in sections:
        name = key.text
        if name in _SECTIONS:
            if (name in _AT_ONCE) == (verb == "exec"):
                steps += _SECTIONS[name](schema, node, verb)
        elif name in SETTINGS:
            steps += global_steps(schema, {name: node}, key.line, verb, schema.mark())
        else:
            schema.unknown(key, "a file", (*_SECTIONS, *SETTINGS))
    return Config(steps, schema.errors, schema.lines)

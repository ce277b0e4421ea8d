"""docs/dlc.md: the reference of the DLC library, drawn from its calls and tables. `make docs` writes it."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import ulnet
from ulnet.dlc.settings import SETTINGS
from ulnet.dlc.tunables import TUNABLES

__all__ = ["PAGE", "page"]

ROOT = Path(__file__).parent.parent
SOURCE = Path(ulnet.__file__).parent / "dlc" / "calls.py"
PAGE = ROOT / "docs" / "dlc.md"

_HEAD = """\
# The DLC library

Written by `make docs` from `ulnet.dlc.calls`; do not edit.

A program configures and queries a node as `lnetctl` does, over the control socket of its `lnetd`, with
typed calls. There are two clients with the same calls:

```python
from ulnet.dlc.calls import add_net, show_nets
from ulnet.dlc.client import Client

with Client() as node:                      # or Client("/run/left.sock")
    node.call(add_net("tcp", ["eth0", "eth1"]))
    for net in node.call(show_nets(verbosity=1)):
        print(net.net_type, [ni.nid for ni in net.local_nis])
```

```python
from ulnet.dlc.aclient import AsyncClient

async with AsyncClient() as node:
    nets = await node.call(show_nets())
```

What comes back are the structures of `ulnet.dlc.documents` (fields that a verbosity leaves out are
`msgspec.UNSET`). What the node refuses, or that it does not answer, is raised as
`ulnet.dlc.errors.DlcError` with `errno` and one sentence (`descr`); nothing has changed then. Every
request has a deadline (30 s unless `Client.request` is given another), and carries the version of the
protocol: where client and node do not fit, both say so, and nothing is done. A node answers one request
at a time on each connection; a program may have several connections.

Peers and NIs can be fetched piece by piece: `show_ni("tcp", index)` until it gives `None`, and
`show_peers(count=100, after=last.primary_nid)` until it gives nothing. Pages of peers are in the order of
NIDs: one that is there all the time is seen once, whoever comes and goes meanwhile. The places of NIs move
up when one in front is deleted.

Files: `ulnet.dlc.config.read_config(text, "add")` gives the requests of a file and all that is wrong
with it; `ulnet.dlc.importing.import_config(client, config)` (`import_config_async`) does them as
`lnetctl import` does. A program that has a `Node` of its own gives the requests to
`ulnet.node.admin.Admin(node).handle`.
"""


def page() -> str:
    """The page as it should be now."""
    source = SOURCE.read_text()
    headings = {at: match[1] for at, match in _headings(source)}
    text = _HEAD
    for node in ast.parse(source).body:
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
            continue
        for at in sorted(at for at in headings if at < node.lineno):
            text += f"\n## {headings.pop(at)}\n\n| Call | |\n| --- | --- |\n"
        doc = " ".join((ast.get_docstring(node) or "").split())
        text += f"| `{_signature(node)}` | {doc.replace('|', chr(92) + '|')} |\n"
    return text + _names()


def _names() -> str:
    """The tunables and settings by name, from their descriptions."""
    text = "\n## Tunables of an NI\n\n`tunables` of a request and of a document; -1 is the default.\n\n"
    text += "| Name | | Most | |\n| --- | --- | --- | --- |\n"
    for name, one in TUNABLES.items():
        words = [*(["of the driver"] if one.driver else []), *(["while it runs"] if one.live else [])]
        text += f"| `{name}` | {one.help} | {one.most} | {', '.join(words)} |\n"
    text += "\n## Node-wide settings\n\n`set_values` takes them, `show_values` gives them.\n\n"
    text += "| Name | | Least | Most | Default |\n| --- | --- | --- | --- | --- |\n"
    for name, setting in SETTINGS.items():
        if setting.help and not setting.name:
            row = (f"`{name}`", setting.help, setting.least, setting.most, setting.default)
            text += f"| {' | '.join(map(str, row))} |\n"
    return text


def _headings(source: str) -> list[tuple[int, re.Match[str]]]:
    lines = enumerate(source.splitlines(), 1)
    found = ((at, re.match(r"# (.+?) -+$", line)) for at, line in lines)
    return [(at, match) for at, match in found if match is not None]


def _signature(node: ast.FunctionDef) -> str:
    """`name(arguments) -> what the call gives`."""
    returns = ast.unparse(node.returns).removeprefix("Call[").removesuffix("]") if node.returns else ""
    returns = re.sub(r"documents\w*\.", "", returns)
    arguments = re.sub(r"model\.", "", ast.unparse(node.args))
    return f"{node.name}({arguments}) -> {returns}".replace("|", "\\|")


def main() -> int:
    """Write the page."""
    PAGE.write_text(page())
    print("docs/dlc.md written")
    return 0


if __name__ == "__main__":
    sys.exit(main())

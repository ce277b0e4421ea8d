"""Looks into YAML nodes and collects all that is wrong with them, each with its line."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import Final

from ulnet.dlc.errors import ErrorItem
from ulnet.dlc.yaml_in import MapNode, Node, ScalarNode, SeqNode

__all__ = ["Schema"]


_MOST_EXPLAINED: Final = 100  # unknown keys of a file: to look for a name that is like it takes long


class Schema:
    """Readers that return what is good and note what is not in `errors`."""

    def __init__(self, verb: str = "add") -> None:
        self.verb = verb
        self.errors: list[ErrorItem] = []
        self.lines: list[int] = []  # of the errors
        self._unknown = 0
        self.lnd_timeout: str | None = None  # what an export says that follows from its settings

    def mark(self) -> int:
        """How much is wrong so far, to be given to `good` at the end of an item."""
        return len(self.errors)

    def good(self, mark: int) -> bool:
        """Whether nothing was noted since then."""
        return len(self.errors) == mark

    def refuse(self, line: int, text: str, number: int = errno.EINVAL) -> None:
        """Note an error."""
        self.errors.append(ErrorItem(self.verb, "import", -number, f"line {line}: {text}"))
        self.lines.append(line)

    def unknown(self, key: ScalarNode, what: str, names: Sequence[str]) -> None:
        """Note a key that nobody knows."""
        self._unknown += 1
        if self._unknown > _MOST_EXPLAINED:
            way_out = f"correct the {_MOST_EXPLAINED} before it first"
            self.refuse(key.line, f"invalid key '{key.text}' in {what}: {way_out}")
            return
        from difflib import get_close_matches  # late: good files do not need it

        close = get_close_matches(key.text, names, n=1, cutoff=0.6)
        way_out = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(names)}"
        self.refuse(key.line, f"invalid key '{key.text}' in {what}: {way_out}")

    def items(self, node: Node, what: str) -> list[MapNode]:
        """The mappings of a sequence."""
        if isinstance(node, ScalarNode) and node.value is None:
            return []
        if not isinstance(node, SeqNode):
            self.refuse(node.line, f"'{what}' holds a list: begin each item with '- '")
            return []
        good = []
        for item in node.items:
            if isinstance(item, MapNode):
                good.append(item)
            else:
                self.refuse(item.line, f"an item of '{what}' holds keys and values: write 'key: value'")
        return good

    def fields(
        self, node: Node, what: str, names: Sequence[str], ignored: Sequence[str] = ()
    ) -> dict[str, Node]:
        """The named values of a mapping."""
        if not isinstance(node, MapNode):
            if not (isinstance(node, ScalarNode) and node.value is None):
                self.refuse(node.line, f"'{what}' holds keys and values: write 'key: value' below it")
            return {}
        found: dict[str, Node] = {}
        for key, value in node.items:
            if key.text in found:
                self.refuse(key.line, f"key '{key.text}' of {what} is given twice: leave one")
            elif key.text in names:
                found[key.text] = value
            elif key.text not in ignored:
                self.unknown(key, what, names)
        return found

    def text(
        self, fields: Mapping[str, Node], name: str, parent: Node, *, required: bool = False
    ) -> str | None:
        """A value as it is written; None if it is absent or empty."""
        node = fields.get(name)
        if node is None or (isinstance(node, ScalarNode) and node.value is None):
            if required:
                self.refuse(parent.line, f"no value for '{name}': write '{name}: …'")
            return None
        if not isinstance(node, ScalarNode):
            self.refuse(node.line, f"invalid value for '{name}': it is one value, not a list or a mapping")
            return None
        return node.text

    def texts(self, fields: Mapping[str, Node], name: str) -> list[str]:
        """A list of values as they are written; one that is given alone is a list, too."""
        node = fields.get(name)
        if node is None or (isinstance(node, ScalarNode) and node.value is None):
            return []
        found = []
        for item in node.items if isinstance(node, SeqNode) else (node,):
            if isinstance(item, ScalarNode) and item.value is not None:
                found.append(item.text)
            else:
                self.refuse(node.line, f"'{name}' holds a list of values: begin each with '- '")
        return found

    def integer(self, fields: Mapping[str, Node], name: str) -> int | None:
        """A number; None if it is absent."""
        node = fields.get(name)
        if node is None:
            return None
        if isinstance(node, ScalarNode):
            if isinstance(node.value, int) and not isinstance(node.value, bool):
                return node.value
            what = f"no value for '{name}'"
            if node.value is not None:
                what = f"invalid value '{node.text}' for '{name}', a number"
            self.refuse(node.line, f"{what}: write digits, such as {name}: 1")
        else:
            self.refuse(node.line, f"invalid value for '{name}': it is one number, not a list or a mapping")
        return None

    def setting(self, fields: Mapping[str, Node], name: str) -> int | None:
        """A number; True and False are 1 and 0."""
        node = fields.get(name)
        if isinstance(node, ScalarNode) and isinstance(node.value, bool):
            return int(node.value)
        return self.integer(fields, name)

    def boolean(self, fields: Mapping[str, Node], name: str, default: bool) -> bool:
        """True or False."""
        node = fields.get(name)
        if node is None:
            return default
        if isinstance(node, ScalarNode) and isinstance(node.value, bool):
            return node.value
        text = node.text if isinstance(node, ScalarNode) else "…"
        self.refuse(node.line, f"invalid value '{text}' for '{name}': write True or False")
        return default

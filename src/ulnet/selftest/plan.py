"""A plan of tests: groups of nodes, what runs between them, and what is expected."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from ulnet.dlc.model_selftest import Brw, Name
from ulnet.nid import NidError
from ulnet.selftest.members import read_ids

__all__ = ["Expect", "Matrix", "Plan", "PlanError", "TestPlan", "read_plan"]

_SIZE: Final = re.compile(r"(\d+)([kKmM]?)\Z")
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20}
_MOST_NODES: Final = 4096
_Direction = Literal["read", "write"]
_Check = Literal["none", "simple", "full", "discard"]
_WORDS: Final[dict[str, tuple[str, ...]]] = {"brw": get_args(_Direction), "check": get_args(_Check)}

Seconds = Annotated[float, msgspec.Meta(gt=0, le=86400)]
Amount = Annotated[float, msgspec.Meta(ge=0)]


class PlanError(ValueError):
    """A plan that cannot be; one sentence for people."""


class Expect(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a test has to reach: MiB/s and requests/s of all clients together, and no more errors than that.

    `slowest` is the least share of the mean bandwidth that each client (or pair of a matrix) has.
    """

    bandwidth: Amount | None = None
    rate: Amount | None = None
    errors: Annotated[int, msgspec.Meta(ge=0)] | None = 0
    slowest: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


class _Load(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What each request is: a ping, unless `brw` is given."""

    brw: _Direction | None = None
    size: int | str = "1M"
    check: _Check = "none"
    offset: Annotated[int, msgspec.Meta(ge=0, lt=4096, multiple_of=8)] = 0
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    seconds: Seconds = 10.0
    stop_on_error: bool = False
    expect: Expect = msgspec.field(default_factory=Expect)

    def load(self) -> Brw | None:
        """The parameters of brw. Raises PlanError."""
        if self.brw is None:
            return None
        return Brw(self.brw, _bytes(self.size), self.check, self.offset)


class TestPlan(_Load, rename={"source": "from", "sink": "to"}, kw_only=True):
    """One test, between two groups; so many clients (`distribute` "1:2") have so many servers."""

    __test__ = False

    name: str
    source: Name
    sink: Name
    distribute: str = "1:1"

    def ratio(self) -> tuple[int, int]:
        """Clients to servers. Raises PlanError."""
        found = re.fullmatch(r"(\d{1,7}):(\d{1,7})", self.distribute)
        if found is None or "0" in found.groups():
            raise PlanError(f"test {self.name}: distribute {self.distribute!r} is no ratio such as '1:2'")
        return int(found[1]), int(found[2])


class Matrix(_Load, kw_only=True):
    """Every pair of nodes of a group by itself, at most so many `flows` at once, no node in two of them."""

    group: Name
    flows: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 4


class Plan(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A whole plan."""

    groups: dict[str, list[str]]
    name: Name = "plan"
    tests: list[TestPlan] = []
    matrix: Matrix | None = None
    interval: Annotated[float, msgspec.Meta(ge=0.1, le=3600)] = 1.0  # seconds between two looks
    features: Annotated[int, msgspec.Meta(ge=0, le=1)] = 1


def read_plan(data: Any) -> Plan:
    """The plan that a YAML document is. Raises PlanError."""
    try:
        plan = msgspec.convert(data, Plan)
    except msgspec.ValidationError as bad:
        raise PlanError(f"no plan of tests: {bad}{_way_out(str(bad))}") from None
    if not plan.tests and plan.matrix is None:
        raise PlanError("a plan without tests: give it 'tests', or a 'matrix'")
    nodes = 0
    for name, ids in plan.groups.items():
        if not 1 <= len(name.encode()) <= 31:
            raise PlanError(f"group {name[:40]!r}: its name has 1 to 31 bytes")
        try:
            nodes += len(read_ids(ids))
        except NidError as bad:
            raise PlanError(f"group {name}: {bad}") from None
    if nodes > _MOST_NODES:
        raise PlanError(f"{nodes} nodes are more than the {_MOST_NODES} of one plan")
    for test in plan.tests:
        test.load(), test.ratio()
        _must_be_group(plan, f"test {test.name}", test.source, test.sink)
    if plan.matrix is not None:
        plan.matrix.load()
        _must_be_group(plan, "matrix", plan.matrix.group)
    return plan


def _way_out(text: str) -> str:
    """What a value could be that is none of its words."""
    found = re.fullmatch(r"Invalid enum value .*\.(\w+)`", text, re.DOTALL)
    words = _WORDS.get(found[1], ()) if found is not None else ()
    return f": it is one of {', '.join(words)}" if words else ""


def _must_be_group(plan: Plan, what: str, *names: str) -> None:
    for name in names:
        if name not in plan.groups:
            raise PlanError(f"{what}: there is no group {name!r}; groups are {', '.join(plan.groups)}")


def _bytes(size: int | str) -> int:
    found = _SIZE.match(str(size))
    number = int(found[1]) * _UNITS[found[2].lower()] if found else 0
    if not 0 < number <= 1 << 20:
        raise PlanError(f"size {size!r} is no size: give 1 to 1M bytes, such as 4k")
    return number

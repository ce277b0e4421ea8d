"""`ulnet apply`: a running node is brought to a file; what it is already is left alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from support.configurations import LINKS, configurations, content, done, exported, still
from support.examples import examples
from ulnet.dlc.config import read_config
from ulnet.dlc.errors import DlcError
from ulnet.dlc.model import OptionsShow, Request
from ulnet.dlc.protocol import Reply
from ulnet.node.admin import Admin
from ulnet.node.apply import Applied, apply_config, ask_admin, plan_config, plan_import
from ulnet.node.dry_run import dry_run

WHOLE = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def written(configuration: dict[str, Any]) -> str:
    return yaml.safe_dump(configuration, sort_keys=False)


async def apply(admin: Admin, text: str) -> Applied:
    return await apply_config(ask_admin(admin), read_config(text))


def unordered(text: str) -> Any:
    """NIs, nets and rules of who may do what have no order that could be changed while they run."""
    document = content(text)
    for net in document.get("net", []):
        net["local NI(s)"].sort(key=str)
    document["net"] = sorted(document.get("net", []), key=str)
    for peer in document["peer"]:
        peer["peer ni"].sort(key=str)
    document["access"] = {name: sorted(rules) for name, rules in document.get("access", {}).items()}
    return document


@pytest.mark.requirement("cfg-170")
@WHOLE
@given(before=configurations(), after=configurations())
async def test_a_node_becomes_what_a_fresh_one_is(before: dict[str, Any], after: dict[str, Any]) -> None:
    assume(read_config(written(after)).steps)
    async with dry_run(LINKS, cpts=2) as admin, dry_run(LINKS, cpts=2) as fresh:
        await done(admin, written(before))
        await done(fresh, written(after))
        planned = await plan_config(ask_admin(admin), read_config(written(after)))
        applied = await apply(admin, written(after))
        assert applied.refused == []
        assert unordered(await exported(admin, True)) == unordered(await exported(fresh, True))
        assert planned == applied
        assert await apply(admin, written(after)) == Applied([], [])


@pytest.mark.requirement("cfg-170")
@WHOLE
@given(configuration=configurations(), backup=st.booleans())
async def test_a_nodes_own_export_changes_nothing(configuration: dict[str, Any], backup: bool) -> None:
    async with dry_run(LINKS, cpts=2) as admin:
        await done(admin, written(configuration))
        text = await exported(admin, backup)
        assert await apply(admin, text) == Applied([], [])
        now = await exported(admin, backup)
        assert now == text if backup else still(now) == still(text)


async def test_all_that_is_refused_of_a_file_is_told_at_once() -> None:
    """A route that a node refuses was left out where another item could not be read."""
    text = """\
net:
- net type: tcp
  local NI(s):
  - interfaces: {0: eth0}
route:
- {net: tcp7, gateway: 10.0.0.9@tcp9}
- {net: tcp8, gateway: 10.0.0.9@tcp}
global: {retry_count: many}
peer:
- {primary nid: 10.0.0.9@tcp9@}
"""
    async with dry_run(LINKS, cpts=2) as admin:
        before = await exported(admin, True)
        for found in (
            await plan_config(ask_admin(admin), read_config(text)),
            await apply(admin, text),
        ):
            assert found.done == []
            lines = [item.descr for item in found.refused]
            assert [line.split(":")[0] for line in lines] == ["line 6", "line 8", "line 10"], lines
            assert "10.0.0.9@tcp9" in lines[0]
        imported = await plan_import(ask_admin(admin), read_config(text))
        assert imported.refused == found.refused and imported.done
        assert await exported(admin, True) == before
        nothing = await plan_config(ask_admin(admin), read_config("net: [\n"))
        assert nothing.done == [] and len(nothing.refused) == 1


async def test_a_node_that_does_not_tell_its_interfaces_is_left_alone() -> None:
    """An lnetd of an earlier version: what a file means for it cannot be worked out."""
    asked: list[Request] = []

    async def ask(request: Request) -> Reply:
        asked.append(request)
        old = {"cpts": 1, "large": False, "requests": [], "drivers": []}
        return Reply(1, msgspec.Raw(msgspec.json.encode(old)))

    for do in (apply_config, plan_config, plan_import):
        with pytest.raises(DlcError, match="which interfaces its host has"):
            await do(ask, read_config("retry_count: 3"))
    assert {type(one) for one in asked} == {OptionsShow}

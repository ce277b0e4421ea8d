"""What a console tells of nodes that do not answer: each line names its node once."""

from __future__ import annotations

import errno

import pytest

from selftest.conftest import Lab
from ulnet.cli.lst_text import error_lines
from ulnet.core.status import LNetError
from ulnet.dlc import model_selftest as ask
from ulnet.dlc.documents_selftest import ActiveDocument, CountersDocument, GroupDocument, PingedDocument
from ulnet.nid import Nid
from ulnet.selftest.console import Console
from ulnet.selftest.members import why_of

pytestmark = pytest.mark.requirement("LST")


async def test_a_node_that_fails_is_named_once(lab: Lab) -> None:
    """Silent at first, as its selftest has stopped, then gone."""
    console, nid = Console(lab.tests[0].exchange), str(lab.nid(2))

    async def do(command: ask.Command) -> object:
        return await console.do(ask.Lst(1, command))

    await do(ask.SessionNew())
    await do(ask.GroupAdd("c", [str(lab.nid(1))]))
    await do(ask.GroupAdd("s", [nid]))
    await do(ask.BatchAdd("b"))
    await do(ask.TestAdd("s", "c", "b"))
    await lab.tests[2].close()
    for gone in (False, True):
        if gone:
            await lab.nodes[2].close()
        counters = await do(ask.Counters(["s"], 0.5))
        assert isinstance(counters, CountersDocument)
        heading, line, total = error_lines(counters.of[0], False)
        assert line.startswith(f"12345-{nid}: ") and line.count(nid) == 1, line
        assert ("connection refused" if gone else "no answer") in line
        assert (heading, total) == ("s:", "Total 1 error nodes in s")
        pinged, queried, listed = (
            await do(ask.NodesPing(group="s", timeout=0.5)),
            await do(ask.BatchQuery("b", timeout=0.5)),
            await do(ask.GroupList(["s"])),
        )
        assert isinstance(pinged, PingedDocument) and isinstance(queried, ActiveDocument)
        assert isinstance(listed, GroupDocument)
        for error in (pinged.nodes[0].error, queried.nodes[0].error, listed.groups[0].nodes[0].error):
            assert error and nid not in error, error
    with pytest.raises(LNetError) as refused:
        await do(ask.BatchRun("b"))
    assert refused.value.text.count(nid) == 1, refused.value.text
    lab.nodes.pop()
    lab.tests.pop()
    await console.close()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("10.0.0.1@tcp: no answer", "no answer"),
        ("10.0.0.1@tcp: 10.0.0.1@tcp: no answer", "no answer"),
        ("10.0.0.1@tcp: 10.0.0.1@tcp closed the connection", "closed the connection"),
        ("no route to 10.0.0.1@tcp", "no route to 10.0.0.1@tcp"),
        ("10.0.0.1@tcp1: no answer", "10.0.0.1@tcp1: no answer"),
        ("10.0.0.1@tcp ", ""),
    ],
)
def test_what_is_told_of_a_node_does_not_name_it_first(text: str, told: str) -> None:
    assert why_of(Nid.parse("10.0.0.1@tcp"), LNetError(errno.ETIMEDOUT, text)) == told

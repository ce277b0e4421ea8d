"""What docstrings cite is told in docs/design/sources.md, section by section."""

from __future__ import annotations

import re

from support.shared import ROOT

PAGE = (ROOT / "docs/design/sources.md").read_text()
TOLD = {
    name: set(re.findall(r"§(\d+) ", sections))
    for name, sections in re.findall(r"^\| `([a-z0-9-]+\.md)` \|.*\| (§[^|]*) \|$", PAGE, re.MULTILINE)
}
CITED = re.compile(r"(?<!/)\b([a-z0-9-]+\.md)((?:,? (?:and )?§[0-9.]+)*)")


def test_each_section_that_is_cited_is_told() -> None:
    cited = lacking = 0
    for path in sorted((ROOT / "src/ulnet").rglob("*.py")):
        for block in re.findall(r"\(spec [^()]*\)", path.read_text()):
            for name, sections in CITED.findall(block):
                cited += 1
                numbers = {number.split(".")[0] for number in re.findall(r"§([0-9.]+)", sections)}
                lacking += name not in TOLD or not numbers <= TOLD[name]
    assert cited > 100
    assert lacking == 0


def test_the_page_is_found_by_what_it_reads() -> None:
    assert len(TOLD) == 12
    assert {"1", "8"} <= TOLD["health.md"]

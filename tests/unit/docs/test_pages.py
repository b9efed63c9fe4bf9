"""The pages of `docs/` agree with the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs_pages import BLOCKS, DOCS, ROOT, with_block
from headwater_broker.api.registry import load_handlers
from headwater_spark.sink.sink_options import SINK_NAMES
from headwater_spark.source.source_options import SOURCE_NAMES
from integration.kafka_tools import NOT_SERVED, USES
from kafka_tools_page import PAGE, WORKS
from kafka_tools_page import main as run_tools
from kafka_tools_page import page as tools_page

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]


@pytest.mark.parametrize("name", BLOCKS)
def test_a_generated_block_is_what_the_code_says(name: str) -> None:
    page, build = BLOCKS[name]
    text = (DOCS / page).read_text()
    assert text == with_block(text, name, build()), f"docs/{page} is stale: run `make docs`"


def test_every_use_of_kafkas_tools_was_run_and_works() -> None:
    told = {use.run.__name__: WORKS for use in USES}
    assert PAGE.read_text() == tools_page(told), (
        "docs/kafka-tools.md is stale: run `make docs-tools`"
    )
    scripts = {use.script for use in USES} | {script for script, _ in NOT_SERVED}
    assert len(scripts) >= 20


def test_a_name_that_no_use_of_kafkas_tools_has_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """It started a cluster, ran nothing, and ended with 1 without a word."""
    name = USES[0].run.__name__
    assert run_tools([name, f"{name}s", "unknown"]) == 2
    near, far = capsys.readouterr().err.splitlines()
    assert f"'{name}s'" in near and f"did you mean {name}" in near
    assert "'unknown'" in far and all(use.run.__name__ in far for use in USES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [t for t in targets if not (page.parent / t).exists()] == []


@pytest.mark.parametrize("name", sorted({*SOURCE_NAMES, *SINK_NAMES}))
def test_every_spark_option_is_documented(name: str) -> None:
    assert f"`{name}`" in (DOCS / "spark.md").read_text()


def test_what_is_said_to_be_missing_is_missing() -> None:
    """`<!-- until:JoinGroup -->` marks a line that is true only until that API is served."""
    served = {row.request.__name__.removesuffix("Request") for row in load_handlers().values()}
    stale = [
        f"{page.name}: {name} is served now: rewrite the line marked until:{name}"
        for page in PAGES
        for name in re.findall(r"<!-- until:(\w+) -->", page.read_text())
        if name in served
    ]
    assert stale == []

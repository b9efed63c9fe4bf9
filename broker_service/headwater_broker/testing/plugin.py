"""The pytest plugin (entry point `pytest11`): fixtures of a real broker in the test's process.

pytest imports this module in every run where Headwater is installed, so it loads the broker only
when a test asks for one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from headwater_broker.testing.broker import InProcessBroker

MARKER = "headwater"
OPTIONS = ("files", "properties")
PORT_FIXTURE = "headwater_bootstrap"
PACKAGES = (
    "headwater",
    "headwater_broker",
    "headwater_gateway",
    "headwater_spark",
    "headwater_tier",
)


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Take Headwater's packages out of pytest's assertion rewriting: pytest marks every package of
    a distribution that has a plugin, and would compile a thousand modules anew in the first run."""
    hook = early_config.pluginmanager.rewrite_hook
    marked = getattr(hook, "_must_rewrite", None)  # not there with --assert=plain
    if marked is not None:
        marked.difference_update(PACKAGES)
        hook.mark_rewrite()  # forgets the answers that were given before


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers",
        'headwater(files="memory", properties={}): how the broker of headwater_broker is made; '
        'files="disk" keeps its logs in files, properties are a broker\'s keys',
    )


@pytest.fixture
def headwater_broker(request: pytest.FixtureRequest) -> Iterator[InProcessBroker]:
    """A broker of the test's own. The test fails when the broker logs an error that is not taken
    out of `headwater_broker.errors`."""
    from headwater_broker.testing.broker import (  # noqa: PLC0415 - loads the whole broker
        InProcessBroker,
    )

    options = _options(request)
    if options.get("files") == "disk":
        options["folder"] = str(request.getfixturevalue("tmp_path") / "headwater")
    ports = PORT_FIXTURE in request.fixturenames
    broker = InProcessBroker(ports=ports, **options).start()
    try:
        yield broker
    finally:
        broker.stop()
    broker.check()


@pytest.fixture
def headwater_bootstrap(headwater_broker: InProcessBroker) -> str:
    """`bootstrap.servers` of `headwater_broker` for any client: a port of 127.0.0.1, open for this
    test only."""
    return headwater_broker.tcp_bootstrap


@pytest.fixture
def headwater_topic(request: pytest.FixtureRequest, headwater_broker: InProcessBroker) -> str:
    """The name of a new topic with one partition, named after the test."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name).strip("-")
    return headwater_broker.topic(f"{name[:200]}-topic")


def _options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The settings of the markers, the nearest one last."""
    options: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers(MARKER))):
        unknown = [name for name in mark.kwargs if name not in OPTIONS]
        if mark.args or unknown:
            given = ", ".join([*map(repr, mark.args), *unknown])
            raise pytest.UsageError(
                f"@pytest.mark.headwater does not take {given}: give files= or properties="
            )
        properties = {**options.get("properties", {}), **mark.kwargs.get("properties", {})}
        options |= mark.kwargs | {"properties": properties}
    return options

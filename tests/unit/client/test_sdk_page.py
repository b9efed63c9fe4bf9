"""Each example of docs/sdk.md is run, against a broker and a registry in this process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from unit.registry.served_registry import ServedRegistry
from whole_cluster import ServedCluster

PAGE = Path(__file__).resolve().parents[3] / "docs" / "sdk.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def c(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    with ServedCluster(Path(tmp_path_factory.mktemp("page")), 1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def registry() -> Iterator[ServedRegistry]:
    server = ServedRegistry()
    yield server
    server.close()


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs(c: ServedCluster, registry: ServedRegistry, number: int) -> None:
    """Alone, in whichever order: each makes what it reads, or finds what another one made."""
    text = EXAMPLES[number]
    text = text.replace("127.0.0.1:9092", c.bootstrap)
    text = text.replace("http://127.0.0.1:8081", registry.url)
    code = compile(text, f"{PAGE.name}, example {number + 1}", "exec", dont_inherit=True)
    exec(code, {"__name__": "__main__"})


def test_the_first_example_is_short() -> None:
    assert len(EXAMPLES[0].splitlines()) <= 8

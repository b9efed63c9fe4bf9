"""README's first example is short, and runs."""

from __future__ import annotations

import re

import pytest

from docs_pages import ROOT
from headwater_broker.testing import InProcessBroker


def test_the_first_example_is_short_and_runs(
    headwater_broker: InProcessBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    found = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.S | re.M)
    assert found is not None
    text = found[1]
    assert len(text.splitlines()) <= 8
    text = text.replace("127.0.0.1:9092", headwater_broker.bootstrap)
    exec(compile(text, "README.md", "exec", dont_inherit=True), {"__name__": "__main__"})
    assert capsys.readouterr().out == "b'delayed'\n"

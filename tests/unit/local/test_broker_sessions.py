"""The file of ZooKeeper sessions, and a file in another format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.local.broker_sessions import FILE_NAME, FORMAT, BrokerSessions


def test_sessions_are_kept_for_the_next_supervisor(tmp_path: Path) -> None:
    BrokerSessions(tmp_path, "h:1").held_by("broker-1", {"session_id": 7, "session_password": "ab"})
    document = json.loads((tmp_path / FILE_NAME).read_text())
    assert document == {"format": FORMAT, "sessions": {"broker-1": [7, "ab"]}}
    again = BrokerSessions(tmp_path, "h:1")
    again.held_by("broker-2", {"session_id": 8, "session_password": "cd"})
    assert len(json.loads((tmp_path / FILE_NAME).read_text())["sessions"]) == 2


@pytest.mark.parametrize("text", ['{"format": 2, "sessions": {}}', '{"broker-1": [7, "ab"]}', "["])
def test_another_format_costs_a_warning(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    BrokerSessions(tmp_path, "h:1").close_leftovers()
    assert "must expire" in caplog.text

"""What a broker says on stdout when it is ready."""

from __future__ import annotations

import json

import pytest

from headwater_broker.app.lifecycle import announce_on_stdout
from headwater_broker.runtime import process

READY = {"ready": True, "port": 9092, "session_id": 7, "session_password": "4d33"}


@pytest.mark.parametrize("managed", [True, False])
def test_only_a_supervisor_learns_the_session(
    managed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With it anybody could end the broker, and journals keep stdout."""
    monkeypatch.setattr(process, "is_managed", lambda: managed)
    announce_on_stdout(READY)
    said = json.loads(capsys.readouterr().out)
    assert said["port"] == 9092
    assert ("session_password" in said, "session_id" in said) == (managed, managed)

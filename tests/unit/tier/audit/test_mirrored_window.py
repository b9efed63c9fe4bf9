"""`headwater audit --mirror`: whether a minute of a mirrored topic is complete at the target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headwater import Admin, NewTopic, Producer
from headwater.cli.main import main
from whole_cluster import ServedCluster

FIRST_MS = 1_700_000_040_000
MINUTE_MS = 60_000
ROWS = 40


def send(servers: str, numbers: range, **options: Any) -> None:
    with Producer(servers, **options) as producer:
        for number in numbers:
            producer.send("flights", b"x", timestamp=FIRST_MS + number % 2 * MINUTE_MS)


def test_a_window_is_complete_once_the_mirror_has_all_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ServedCluster(tmp_path / "a", 1) as a, ServedCluster(tmp_path / "b", 1) as b:
        for servers in (a.bootstrap, b.bootstrap):
            with Admin(servers) as admin:
                admin.create_topics([NewTopic("flights", 1, 1)])

        def audit() -> tuple[int, list[dict[str, int]]]:
            where = ["--mirror", b.bootstrap, "--bootstrap-server", a.bootstrap]
            code = main(["audit", "flights", "--grace", "0", "--json", *where])
            return code, [row["differing"] for row in json.loads(capsys.readouterr().out)]

        send(a.bootstrap, range(ROWS))
        with Producer(b.bootstrap, transactional_id="mirror") as mirror, mirror.transaction():
            for number in range(ROWS - 1):  # its offsets are others: markers
                mirror.send("flights", b"x", timestamp=FIRST_MS + number % 2 * MINUTE_MS)
        assert audit() == (1, [{}, {f"mirror {b.bootstrap}": -1}])
        send(b.bootstrap, range(ROWS - 1, ROWS))
        assert audit() == (0, [{}, {}])

"""A file's lines through Kafka Connect into a topic, and from there into another file."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater import Admin
from headwater.client.values import NewTopic
from integration.conftest import Start, next_base_port
from suites import parts
from suites.kafka_connect import Connect, read_properties
from suites.killing import wait_until
from suites.parts import INTEGRATIONS, MissingPartError

pytestmark = [pytest.mark.integration, pytest.mark.integrations, pytest.mark.timeout(200)]
EXAMPLE = INTEGRATIONS / "connect"
WAIT_S = 60.0
CONVERTERS = ("key.converter", "value.converter")


def test_lines_pass_once_also_after_a_restart(start_cluster: Start, tmp_path: Path) -> None:
    try:
        jars = parts.connect_file_jars()
    except MissingPartError as error:
        pytest.skip(str(error))
    servers = start_cluster(brokers=1).bootstrap
    source = read_properties(EXAMPLE / "file-source.properties")
    sink = read_properties(EXAMPLE / "file-sink.properties")
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(source["topic"], 1, 1)])
    read, written = tmp_path / "app.log", tmp_path / "lines.txt"
    source["file"], sink["file"] = str(read), str(written)
    worker = read_properties(EXAMPLE / "worker.properties")
    settings = {name: worker[name] for name in CONVERTERS}
    connect = Connect(
        tmp_path / "connect", jars, servers, next_base_port(tmp_path), [source, sink], settings
    )
    # ASCII: Kafka's source counts characters and, started again, skips as many bytes.
    lines = ["first", "second", "third"]
    read.write_text("".join(f"{line}\n" for line in lines))
    with connect:
        wait_until(lambda: written_lines(written) == lines, "lines", WAIT_S)
        connect.stop()
    lines += ["while it was down", "last"]
    with read.open("a") as file:
        file.writelines(f"{line}\n" for line in lines[3:])
    with connect:
        wait_until(lambda: len(written_lines(written)) >= len(lines), connect.told(), WAIT_S)
        connect.stop()
    assert written_lines(written) == lines


def written_lines(path: Path) -> list[str]:
    """The lines that the sink wrote."""
    return path.read_text().splitlines() if path.exists() else []

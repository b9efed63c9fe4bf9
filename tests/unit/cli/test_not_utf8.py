"""Arguments and files that are not in UTF-8: one line that names the value, no traceback."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
import pytest

from headwater.cli.configs import configs
from headwater.cli.consume import consume
from headwater.cli.groups import groups
from headwater.cli.main import run_command
from headwater.cli.produce import produce
from headwater.cli.reassign.command import reassign
from headwater.cli.topics import topics
from headwater.errors import UsageError
from headwater.wire.apis.k03_metadata import MetadataRequest, MetadataRequestTopic
from headwater.wire.framing import encode_request
from solo_broker import SoloBroker

LATIN = "caf\udce9"
"""What Python makes of the argument `caf\\xe9`."""
PLAN = r'{"partitions": [{"topic": "x\ud800", "partition": 0, "replicas": [1]}]}'


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (topics, ["create", LATIN]),
        (topics, ["create", "t", "--config", f"retention.ms={LATIN}"]),
        (topics, ["delete", LATIN]),
        (topics, ["describe", LATIN]),
        (configs, ["describe", "topic", LATIN]),
        (groups, ["describe", LATIN]),
        (groups, ["delete", LATIN]),
        (produce, [LATIN, "x"]),
        (consume, [LATIN]),
        (consume, ["t", "--group", LATIN]),
        (reassign, ["execute", "{plan}"]),
        (reassign, ["verify", "{plan}"]),
    ],
)
def test_values_that_are_no_text_are_named_in_one_line(
    command: click.Command,
    arguments: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(PLAN)

    async def run() -> int:
        async with SoloBroker(tmp_path / "disk") as broker:
            broker.create_topic("t")
            given = [a.format(plan=plan) for a in arguments]
            given += ["--bootstrap-server", f"127.0.0.1:{broker.port}"]
            return await asyncio.to_thread(run_command, command, given)

    assert asyncio.run(run()) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1 and "is not text in UTF-8" in shown
    assert r"caf\udce9" in shown or r"x\ud800" in shown


def test_a_request_names_the_string_that_it_cannot_carry() -> None:
    request = MetadataRequest(topics=(MetadataRequestTopic(name=LATIN),))
    with pytest.raises(UsageError, match=r"'caf\\udce9' is not text in UTF-8 from character 3 on"):
        encode_request(request, 12, 1, None)

"""A mirror between two real brokers of ours, in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from headwater import Admin, NewTopic, Producer
from headwater.cli.mirror import mirror
from headwater.errors import UsageError
from headwater.mirror.bucket import PromotedError
from mirror_pair import (
    RunningMirror,
    mirrored,
    payloads,
    properties,
    read_all,
    until,
)
from whole_cluster import ServedCluster


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Bootstrap servers of the source and of the target."""
    folder = tmp_path_factory.mktemp("mirror")
    with ServedCluster(folder / "a", 1) as a, ServedCluster(folder / "b", 1) as b:
        yield a.bootstrap, b.bootstrap


def create(servers: str, name: str, partitions: int = 2, **configs: str) -> None:
    with Admin(servers) as admin:
        rows = {key.replace("_", "."): value for key, value in configs.items()}
        admin.create_topics([NewTopic(name, partitions, 1, rows)])


def config_file(folder: Path, given: dict[str, str]) -> str:
    path = folder / "mirror.properties"
    path.write_text("".join(f"{k}={v}\n" for k, v in given.items()))
    return str(path)


def run_cli(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(mirror, arguments, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.return_value, result.stdout


def test_records_arrive_once_in_order_with_every_codec_and_without_aborted_ones(
    pair: tuple[str, str],
) -> None:
    source, target = pair
    create(source, "codecs", 2)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        with Producer(source, compression_type=codec) as producer:
            for n in range(40):
                producer.send(
                    "codecs", b"%s-%d" % (codec.encode(), n), key=b"k%d" % (n % 3),
                    headers=[("h", None)], timestamp=1_700_000_000_000 + n, partition=n % 2,
                )  # fmt: skip
    with Producer(source, transactional_id="writer") as producer:
        for end in (producer.commit_transaction, producer.abort_transaction) * 2:
            producer.begin_transaction()
            for n in range(6):
                producer.send("codecs", b"%s-%d" % (end.__name__.encode(), n), partition=n % 2)
            end()
    with RunningMirror(properties(source, target, topics="codecs", mirror_id="codecs")) as running:
        until(lambda: mirrored(source, target, "codecs"), "everything is mirrored")
        with Producer(source) as producer:
            producer.send("codecs", b"later", partition=1)
        until(lambda: mirrored(source, target, "codecs"), "what came later too")
        buckets = running.service.buckets
        assert sorted(buckets) == [0, 1, 2, 3]
        assert sum(b.records for b in buckets.values()) == 5 * 40 + 12 + 1
    ours = payloads(read_all(target, "codecs"))
    assert ours == payloads(read_all(source, "codecs"))
    assert not any(b"abort" in (row[2] or b"") for rows in ours.values() for row in rows)


def test_a_mirror_that_begins_again_goes_on_where_it_was(pair: tuple[str, str]) -> None:
    source, target = pair
    create(source, "again", 3, retention_ms="86400000")
    given = properties(source, target, topics="again", mirror_id="again")
    for turn in range(3):
        with Producer(source) as producer:
            for n in range(30):
                producer.send("again", b"%d-%d" % (turn, n), partition=n % 3)
        with RunningMirror(given):
            until(lambda: mirrored(source, target, "again"), "everything is mirrored")
    assert payloads(read_all(target, "again")) == payloads(read_all(source, "again"))
    with Admin(target) as admin:
        assert admin.describe_configs("topic", "again")["retention.ms"].value == "86400000"


def test_status_and_positions_tell_the_lag_and_promote_fences_and_reports_the_gap(
    pair: tuple[str, str], tmp_path: Path
) -> None:
    source, target = pair
    create(source, "dr", 2)
    given = properties(source, target, topics="dr", mirror_id="dr")
    path = config_file(tmp_path, given)
    with pytest.raises(UsageError, match="mirror dr never ran"):
        run_cli("status", "--config", path)
    with Producer(source) as producer:
        for n in range(10):
            producer.send("dr", b"%d" % n, partition=n % 2)
    with RunningMirror(given):
        until(lambda: mirrored(source, target, "dr"), "everything is mirrored")
        until(lambda: json.loads(run_cli("status", "--config", path, "--json")[1])["lag"] == 0, "0")
        _, text = run_cli("status", "--config", path, "--json")
        found = json.loads(text)
        assert (found["state"], found["source_reachable"], found["stopped"]) == ("running", True, 0)
        assert [(p["partition"], p["position"]) for p in found["partitions"]] == [(0, 5), (1, 5)]
    with Producer(source) as producer:
        for _ in range(3):
            producer.send("dr", b"tail", partition=1)
    code, text = run_cli("positions", "--config", path, "--json")
    assert (code, [row["position"] for row in json.loads(text)]) == (0, [5, 5])
    with RunningMirror({**given, "topics": "other"}) as running:
        until(lambda: running.service.buckets, "it runs")
        _, text = run_cli("promote", "--config", path, "--json")
        assert isinstance(running.ended(), PromotedError)
    report = json.loads(text)
    assert (report["gap_records"], report["gap_offsets"]) == (3, 3)
    assert [p["gap_records"] for p in report["partitions"]] == [0, 3]
    with RunningMirror(given) as running:
        assert isinstance(running.ended(), PromotedError)
    assert json.loads(run_cli("status", "--config", path, "--json")[1])["state"] == "promoted"
    assert json.loads(run_cli("promote", "--config", path, "--json")[1])["gap_records"] == 3

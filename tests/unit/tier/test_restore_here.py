"""The folder that a restore fills: which brokers, and what must not be there before."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from headwater.errors import UsageError
from headwater_tier.restore.command import restore
from headwater_tier.restore.local_cluster import LocalTarget, local_spec

CLUSTER = "hwTestClusterAAAAAAAAAA"


def target(folder: Path, *broker_ids: int, tables: str = "s3://lake/hw") -> LocalTarget:
    return LocalTarget(
        directory=str(folder),
        cluster_id=CLUSTER,
        broker_ids=broker_ids,
        base_port=9192,
        tables_uri=tables,
        properties={"num.partitions": "3"},
    )


def test_the_brokers_are_those_that_had_replicas(tmp_path: Path) -> None:
    spec = local_spec(target(tmp_path, 0, 2, 3))
    assert (spec.cluster_id, spec.broker_ids, spec.base_port) == (CLUSTER, (0, 2, 3), 9192)
    assert dict(spec.properties) == {
        "num.partitions": "3",
        "headwater.tables.uri": "s3://lake/hw",
    }


def test_tables_in_the_folder_itself_need_no_setting(tmp_path: Path) -> None:
    spec = local_spec(target(tmp_path, 0, tables=(tmp_path / "tables").as_uri()))
    assert dict(spec.properties) == {"num.partitions": "3"}


def test_a_folder_with_replicas_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broker-0" / "flights-0").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"broker-0 holds replicas: .*or name another --dir"):
        local_spec(target(tmp_path, 0))


def test_replicas_of_an_interrupted_restore_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "broker-0" / "flights-0").mkdir(parents=True)
    (tmp_path / "zookeeper").mkdir()
    assert local_spec(target(tmp_path, 0)).broker_ids == (0,)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--bootstrap-server", "b:1"], "--bootstrap-server goes with --zookeeper"),
        ([], "there is no catalog at"),
        (["--zookeeper", "nowhere"], "write HOST:PORT"),
        (["--key-file", "none"], "No such file"),
    ],
)
def test_bad_options_are_named(tmp_path: Path, more: list[str], words: str) -> None:
    done = CliRunner().invoke(restore, ["--from", str(tmp_path), "--dir", str(tmp_path), *more])
    assert words in str(done.exception)

"""`log.dirs` of a local cluster: several data folders per broker, and whose they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import UsageError
from headwater.local import cluster_file
from headwater.local.cluster_file import data_roots, of_spec, resolve
from headwater.local.cluster_spec import ClusterSpec
from headwater.local.data_folders import parse_log_dirs, replicas
from headwater.local.supervisor import broker_properties
from headwater.system import SystemEntropy


def resolved(directory: Path, **properties: str) -> ClusterSpec:
    """The spec of an `up` with these properties, kept as a successful start keeps it."""
    rows = {key.replace("_", "."): value for key, value in properties.items()}
    spec = resolve(directory, 2, 9092, SystemEntropy(), properties=rows)
    directory.mkdir(exist_ok=True)
    cluster_file.save(directory, of_spec(spec))
    return spec


def test_every_broker_has_a_folder_on_each_disk(tmp_path: Path) -> None:
    one, two = tmp_path / "disk1", tmp_path / "disk2"
    spec = resolved(tmp_path / "d", log_dirs=f"{one},{two}")
    assert spec.slot(1).folders == (one / "broker-1", two / "broker-1")
    rows = broker_properties(spec, spec.slot(1))
    assert rows["log.dirs"] == f"{one}/broker-1,{two}/broker-1"
    again = resolve(tmp_path / "d", None, None, SystemEntropy())
    assert again.slot(0).folders == (one / "broker-0", two / "broker-0"), "kept for later starts"
    assert "log.dirs" not in dict(again.properties)
    assert data_roots(tmp_path / "d", {}) == (one, two)


def test_without_log_dirs_the_data_is_in_the_clusters_folder(tmp_path: Path) -> None:
    spec = resolved(tmp_path)
    assert spec.slot(1).folders == (tmp_path / "broker-1",)
    assert data_roots(tmp_path / "absent", {}) == (tmp_path / "absent",)


def test_a_folder_with_replicas_cannot_be_left_out(tmp_path: Path) -> None:
    one, two, directory = tmp_path / "disk1", tmp_path / "disk2", tmp_path / "d"
    resolved(directory, log_dirs=f"{one},{two}")
    (two / "broker-0" / "t-0").mkdir(parents=True)
    for given in (str(one), ""):
        with pytest.raises(UsageError, match=f"leaves out {two}.*{two}/broker-0 holds replicas"):
            resolved(directory, log_dirs=given)
    resolved(directory, log_dirs=f"{two},{one},{directory}")  # more folders, in another order
    (two / "broker-0" / "t-0").rmdir()
    (two / "broker-0" / "remote-log-cache").mkdir()
    assert replicas(two / "broker-0") == []
    assert resolved(directory, log_dirs="").data_roots == (directory,)


@pytest.mark.parametrize(
    ("text", "words"), [("a,,b", "an empty name"), (",", "an empty name"), ("a,b,./a", "twice")]
)
def test_bad_lists_of_folders_are_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_log_dirs(text)


def write_meta(folder: Path, cluster_id: str) -> None:
    folder.mkdir(parents=True)
    (folder / "meta.properties").write_text(f"version=1\ncluster.id={cluster_id}\n")


def test_a_folder_of_another_cluster_on_any_disk_is_refused(tmp_path: Path) -> None:
    disk, directory = tmp_path / "disk", tmp_path / "d"
    resolved(directory)
    write_meta(disk / "broker-1", "another")
    with pytest.raises(UsageError, match="broker-1 belongs to cluster another"):
        resolved(directory, log_dirs=f"{directory},{disk}")


def test_a_lost_cluster_file_is_made_again_from_the_folders_given(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    write_meta(disk / "broker-0", "abc")
    properties = {"log.dirs": str(disk)}
    spec = resolve(tmp_path / "d", None, None, SystemEntropy(), properties=properties)
    assert spec.cluster_id == "abc"

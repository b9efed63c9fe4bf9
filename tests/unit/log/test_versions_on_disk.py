"""Files of a newer Headwater: unknown formats are refused by name, added fields are kept."""

from __future__ import annotations

import pytest

from headwater.errors import UsageError
from headwater_broker.log import checkpoint_files
from headwater_broker.log.checkpoint_files import decode_properties
from headwater_broker.log.transaction_index import (
    AbortedTransaction,
    TransactionIndex,
    decode_aborted,
)
from unit.log.harness import Box, batch

OF_A_FOLDER = {
    "/d/meta.properties": b"version=2\nnode.id=1\n",
    f"/d/{checkpoint_files.CLEAN_SHUTDOWN}": b'{"version":1,"brokerEpoch":5}',
    f"/d/{checkpoint_files.RECOVERY_POINTS}": b"1\n0\n",
    f"/d/{checkpoint_files.HIGH_WATERMARKS}": b"1\n0\n",
    f"/d/{checkpoint_files.LOG_STARTS}": b"1\n0\n",
    f"/d/{checkpoint_files.CLEANER_OFFSETS}": b"1\n0\n",
}
OF_A_LOG = {
    checkpoint_files.LEADER_EPOCHS: b"1\n0\n",
    checkpoint_files.PARTITION_METADATA: b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n",
}


def stopped_box() -> tuple[Box, str]:
    """A folder with one log, and that log's path."""
    box = Box()
    log = box.log()
    log.append_as_leader(batch(), 1, 2000)
    box.restart()
    box.manager.close(5)
    return box, log.path


@pytest.mark.parametrize("path", OF_A_FOLDER)
def test_a_folder_of_a_newer_headwater_is_not_touched(path: str) -> None:
    box, _ = stopped_box()
    box.files.write_atomic(path, OF_A_FOLDER[path])
    before = {name: box.files.read(f"/d/{name}") for name in ("meta.properties",)}
    with pytest.raises(UsageError, match=rf"{path}.*newer Headwater"):
        box.open_manager()
    assert before == {name: box.files.read(f"/d/{name}") for name in ("meta.properties",)}


@pytest.mark.parametrize("name", OF_A_LOG)
def test_a_log_of_a_newer_headwater_is_not_set_aside(name: str) -> None:
    box, path = stopped_box()
    box.files.write_atomic(f"{path}/{name}", OF_A_LOG[name])
    with pytest.raises(UsageError, match=rf"{path}/{name}.*newer Headwater"):
        box.open_manager().load_all()
    assert path.rpartition("/")[2] in box.files.names("/d")


def test_keys_that_a_newer_headwater_added_to_meta_properties_stay() -> None:
    box, _ = stopped_box()
    found = decode_properties(box.files.read("/d/meta.properties"))
    old = {**found, "zone": "z"}
    del old["version"]
    box.files.write_atomic("/d/meta.properties", checkpoint_files.encode_properties(old))
    box.open_manager()
    assert decode_properties(box.files.read("/d/meta.properties")) == {**found, "zone": "z"}


def test_meta_properties_has_the_keys_that_kafka_requires_of_version_1() -> None:
    box = Box()
    found = decode_properties(box.files.read("/d/meta.properties"))
    assert set(found) == {"version", "node.id", "cluster.id", "directory.id"}
    assert (found["version"], found["node.id"], found["cluster.id"]) == ("1", "1", "c")


@pytest.mark.parametrize("version", ["0", "1"])
def test_a_folder_whose_meta_properties_says_broker_id_opens_and_is_rewritten(version: str) -> None:
    box, _ = stopped_box()
    found = decode_properties(box.files.read("/d/meta.properties"))
    old = {**found, "version": version, "broker.id": found["node.id"]}
    del old["node.id"]
    box.files.write_atomic("/d/meta.properties", checkpoint_files.encode_properties(old))
    box.open_manager()
    assert box.manager.get("t", 0) is not None
    assert decode_properties(box.files.read("/d/meta.properties")) == found


def test_an_aborted_transaction_of_a_newer_format_is_refused() -> None:
    box = Box()
    index = TransactionIndex(box.files, "/d/0.txnindex", exists=False)
    index.add(AbortedTransaction(9, 10, 20, 15))
    data = box.files.read("/d/0.txnindex")
    with pytest.raises(UsageError, match=r"/d/0\.txnindex has format version 1"):
        decode_aborted(b"\0\1" + data[2:], "/d/0.txnindex")

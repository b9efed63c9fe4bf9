"""Kafka's own tools on data folders: DumpLogSegments on every kind of file, StorageTool."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from uuid import UUID

import pytest

from headwater.records.compression import Compression
from headwater.system import SystemClock, SystemEntropy
from headwater.system_files import SystemFiles
from headwater_broker.log.cleaner import LogCleaner
from headwater_broker.log.cleaner_process import CleanerProcesses
from headwater_broker.log.log_manager import LogManager
from headwater_broker.log.results import AppendOrigin
from integration.clients import CODECS
from integration.jvm_tools import kafka_tool
from unit.log.compacting import end_transaction, records_batch

pytestmark = pytest.mark.integration


def dump(*files: Path) -> str:
    """What DumpLogSegments makes of files."""
    name = "org.apache.kafka.tools.DumpLogSegments"
    return kafka_tool(name, "--files", ",".join(map(str, files)))


async def compact(manager: LogManager) -> None:
    """By a worker process."""
    processes = CleanerProcesses()
    await LogCleaner(manager, processes, SystemClock()).run()
    await processes.close()


def compacted_folder(data: Path) -> Path:
    """The folder of a log with every kind of file, compacted twice and closed."""
    manager = LogManager(
        SystemFiles(), [str(data)], broker_id=1, cluster_id="c", clock=SystemClock(),
        entropy=SystemEntropy(), broker_properties={}, offload=lambda job: job(),
    )  # fmt: skip
    manager.load_all()
    settings = {
        "cleanup.policy": "compact",
        "segment.bytes": "3000",
        "index.interval.bytes": "200",
        "min.cleanable.dirty.ratio": "0",
    }
    config = manager.log_config(settings)
    log = manager.get_or_create("t", UUID(int=7), 0, config, is_new=True)
    emptied = records_batch([(b"key 1", b"not for long")], 1000, producer=(9, 0, 0))
    log.append_as_leader(emptied, 0, 2000)
    for number in range(60):
        pairs = [(b"key %d" % (n % 7), b"%d" % n if n % 5 else None) for n in range(number, 70)]
        view = records_batch(pairs, 1000 * number, codec=Compression(number % 5))
        log.append_as_leader(view, number // 20, 2000)
        for producer_id in (7, 8):
            view = records_batch(
                [(b"in transaction", b"%d" % number)], 1000 * number,
                producer=(producer_id, 0, number), transactional=True,
            )  # fmt: skip
            log.append_as_leader(view, number // 20, 2000, origin=AppendOrigin.COORDINATOR)
            end_transaction(log, producer_id, 0, commit=producer_id == 7)
    size = log.size_bytes
    for _ in range(2):  # the second pass gives markers their horizon, and puts segments together
        log.first_dirty_offset = 0
        asyncio.run(compact(manager))
    assert log.size_bytes < size / 2
    assert not log.uncleanable_reason
    manager.close()
    return data / "t-0"


def test_storage_tool_reads_a_data_folder(tmp_path: Path) -> None:
    data = tmp_path / "data"
    manager = LogManager(
        SystemFiles(), [str(data)], broker_id=1, cluster_id="c", clock=SystemClock(),
        entropy=SystemEntropy(), broker_properties={}, offload=lambda job: job(),
    )  # fmt: skip
    manager.load_all()
    manager.close()
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
        f"controller.quorum.voters=1@localhost:9093\nlog.dirs={data}\n"
    )
    told = kafka_tool("kafka.tools.StorageTool", "info", "--config", str(properties))
    assert re.search(r"Found metadata: \{cluster\.id=c, directory\.id=\S+, node\.id=1", told)


def test_dump_log_segments_reads_a_compacted_log_and_every_kind_of_file(tmp_path: Path) -> None:
    folder = compacted_folder(tmp_path)
    kinds = {path.suffix for path in folder.iterdir()}
    assert kinds >= {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    logs = sorted(folder.glob("*.log"))
    text = dump(*logs)
    assert "invalid" not in text.lower() and "isvalid: false" not in text
    assert set(re.findall(r"compresscodec: (\w+)", text)) == set(CODECS)
    assert re.search(r"deleteHorizonMs: OptionalLong\[\d+\]", text)
    assert re.search(r"isControl: true", text)
    assert re.search(r"count: 0 .*producerId: 9 ", text)  # a live producer's last batch
    counted = [
        (int(last) - int(base) + 1, int(count))
        for base, last, count in re.findall(
            r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+)", text
        )
    ]
    assert any(count < offsets for offsets, count in counted)  # holes
    for suffix in (".index", ".timeindex"):
        shown = dump(*(log.with_suffix(suffix) for log in logs))
        assert re.search(r"offset: \d+", shown), suffix
        for complaint in ("Mismatch", "mismatch", "out of order", "should be"):
            assert complaint not in shown, suffix
    indexes = sorted(folder.glob("*.txnindex"))
    assert re.search(r"producerId: 8 firstOffset: \d+ lastOffset: \d+", dump(*indexes))
    snapshot = dump(sorted(folder.glob("*.snapshot"))[-1])
    assert re.search(r"producerId: 7 producerEpoch: 0 ", snapshot)

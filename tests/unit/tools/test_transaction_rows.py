"""dump-log says in plain words what records of `__transaction_state` say."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from headwater.records.builder import BatchBuilder
from headwater_broker.coordinator.common.shard import LEADERSHIP_PROOF, StoredRecord
from headwater_broker.tools.dump_log import dump_log
from unit.coordinator.epoch_log import RUN, EpochLog, named, writer


def dumped(folder: Path, records: list[StoredRecord]) -> list[dict[str, object]]:
    builder = BatchBuilder()
    for record in records:
        builder.append(2_000, record.key, record.value)
    path = folder / "__transaction_state-7" / f"{0:020d}.log"
    path.parent.mkdir()
    path.write_bytes(builder.build())
    result = CliRunner().invoke(dump_log, [str(path), "--records", "--json"])
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.output.splitlines()[1:]]
    return [{k: v for k, v in row.items() if k not in ("file", "timestamp")} for row in rows]


def test_the_records_of_an_epoch_are_named(tmp_path: Path) -> None:
    log, of = EpochLog(), writer()
    log.ask(lambda s, t: s.epochs.tickets.allocate(t))
    log.commit(of, named(0, log.joined(of)))
    log.delete()
    rows = dumped(tmp_path, log.log)
    assert rows[0] == {"offset": 0, "ticketsReservedTo": 1_001}
    sink = rows[1]["state"]
    assert isinstance(sink, dict)
    assert (rows[1]["sink"], sink["owner"], sink["kind"], sink["run"]) == (
        "alerts", "query", "QUERY", str(RUN),
    )  # fmt: skip
    member = rows[2]["state"]
    assert isinstance(member, dict)
    assert (rows[2]["transactionalId"], member["state"], member["partitions"]) == (
        "__hw.alerts.0", "Ongoing", ["flights-0"],
    )  # fmt: skip
    assert member["membership"] == {"epoch": 0, "ticket": 1, "task": 0, "attempt": 0}
    decision = rows[3]["decision"]
    assert isinstance(decision, dict)
    assert (decision["state"], decision["slots"]) == ("Committing", {"0": 0})
    assert rows[6] == {"offset": 6, "sink": "alerts", "epoch": 0, "ticket": 1, "decision": None}
    assert rows[-1] == {"offset": 8, "sink": "alerts", "state": None}


def test_other_kinds_and_unreadable_records_are_no_damage(tmp_path: Path) -> None:
    rows = dumped(tmp_path, [LEADERSHIP_PROOF, StoredRecord(b"\x00\x00\x00\x01t", b"\x00\x09")])
    assert rows[0] == {"offset": 0}
    assert "version 9" in str(rows[1]["unreadable"])

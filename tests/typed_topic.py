"""A topic whose log table is written in-process, and a small JSON decoder, for tests of typing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater_tier.commit import commit_facts, ensure_table
from headwater_tier.data_files import tier_range
from headwater_tier.offset_ranges import plan_ranges
from headwater_tier.table_names import TableLocation
from headwater_tier.typed.decoding import DeclaredFormat, Decoded, RegisteredSchema
from headwater_tier.typed.follow_log import FollowResult, follow_topic
from headwater_tier.typed.quarantine_reasons import Misfit, Reason
from tier_log import CountingEntropy, FixedClock, MemoryLog, location_at

JSON = {"headwater.value.format": "json"}
CLOCK = FixedClock()


class NoSchemas:
    """A registry without schemas."""

    def by_id(self, schema_id: int) -> RegisteredSchema | None:
        return None

    def latest(self, subject: str) -> RegisteredSchema | None:
        return None


class TypedTopic:
    """Records in memory, tiered into a log table, followed into the derived tables."""

    def __init__(self, folder: Path, partitions: int = 2, topic: str = "orders") -> None:
        self.log = MemoryLog()
        self.location: TableLocation = location_at(folder, topic)
        self.partitions = partitions
        self.entropy = CountingEntropy()
        self.configs: dict[str, str] = dict(JSON)

    def produce(self, partition: int, *values: Any, key: bytes | None = b"k") -> None:
        """Append records: bytes and None as they are, other values as JSON."""
        rows = [(1_000, key, _blob(value)) for value in values]
        self.log.append(partition, rows)

    def produce_pairs(self, partition: int, *pairs: tuple[bytes | None, Any]) -> None:
        """Append (key, value) records."""
        self.log.append(partition, [(1_000, key, _blob(value)) for key, value in pairs])

    def tier(self) -> None:
        """Move all records into the log table."""
        ends = ensure_table(self.location, self.partitions)
        ranges = plan_ranges(ends, self.log.bounds())
        if not ranges:
            return
        facts = tier_range(self.log.fetch, ranges, self.location, clock=CLOCK, entropy=self.entropy)
        commit_facts(self.location, ranges, [facts] if facts else [], clock=CLOCK)

    def follow(self, configs: Mapping[str, str] | None = None, **more: Any) -> FollowResult:
        """One turn."""
        more = {"decoder_for": JsonDecoder.of, "entropy": self.entropy} | more
        return follow_topic(self.location, configs or self.configs, NoSchemas(), CLOCK, **more)

    def follow_all(self, **more: Any) -> FollowResult:
        """Turns until nothing is behind."""
        while (result := self.follow(**more)).behind:
            continue
        return result


def _blob(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()


class JsonDecoder:
    """Flat JSON objects of strings, integers and floats; a column has the first value's type."""

    def __init__(self, declared: DeclaredFormat, known: pa.Schema) -> None:
        self._fields = {field.name: field.type for field in known}
        if declared.schema.startswith("{"):
            for name, type_ in json.loads(declared.schema).items():
                self._fields.setdefault(name, pa.type_for_alias(type_))

    @classmethod
    def of(cls, declared: DeclaredFormat, known: pa.Schema, schemas: object) -> JsonDecoder:
        return cls(declared, known)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(list(self._fields.items()))

    def decode(self, blobs: pa.ChunkedArray) -> Decoded:
        rows: list[dict[str, Any]] = []
        misfits = []
        for at, blob in enumerate(blobs.to_pylist()):
            row: dict[str, Any] = {}
            if blob is not None:
                try:
                    row = json.loads(blob)
                    self._check(row)
                except ValueError as error:
                    misfits.append(Misfit(at, Reason.MALFORMED, str(error)))
                    row = {}
                except TypeError as error:
                    misfits.append(Misfit(at, Reason.DOES_NOT_FIT, str(error)))
                    row = {}
            rows.append(row)
        columns = [pa.array([r.get(n) for r in rows], t) for n, t in self._fields.items()]
        table = pa.table(columns, schema=self.schema) if columns else _empty(len(rows))
        return Decoded(table, tuple(misfits))

    def _check(self, row: dict[str, Any]) -> None:
        found = {name: _type_of(value) for name, value in row.items() if value is not None}
        for name, type_ in found.items():
            wanted = self._fields.get(name, type_)
            if wanted != type_:
                raise TypeError(f"{name} is {type_}, not {wanted}")
        self._fields |= {n: t for n, t in found.items() if n not in self._fields}


def _empty(rows: int) -> pa.Table:
    return pa.table({"x": pa.nulls(rows)}).select([])


def _type_of(value: Any) -> pa.DataType:
    return {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}[type(value)]

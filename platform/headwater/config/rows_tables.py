"""The keys of a topic that say how its records become typed Delta tables. Headwater's own."""

from __future__ import annotations

from headwater.config.row import ConfigKey, Kind, Scope, Value

FORMATS = ("", "json", "avro", "protobuf", "confluent")


def _row(
    name: str,
    kind: Kind,
    default: Value,
    doc: str,
    *,
    unit: str = "",
    minimum: float | None = None,
    choices: tuple[str, ...] = (),
) -> ConfigKey:
    return ConfigKey(name, kind, default, Scope.TOPIC, unit, doc, minimum, None, choices, "")


TABLE_ROWS = (
    _row(
        "headwater.value.format",
        Kind.STRING,
        "",
        "With tiering: format of the values, which become columns of TOPIC_typed; confluent: "
        "framed with a schema id of the registry; empty: no typed table.",
        choices=FORMATS,
    ),
    _row(
        "headwater.value.schema",
        Kind.STRING,
        "",
        "An inline schema (JSON Schema, Avro, .proto), registry, registry:SUBJECT, or infer; "
        "empty: infer for json, the registry for confluent.",
    ),
    _row(
        "headwater.value.message",
        Kind.STRING,
        "",
        "Name of the Protobuf message of the values; empty: the schema's first.",
    ),
    _row(
        "headwater.value.envelope",
        Kind.STRING,
        "",
        "debezium: values are change events, unwrapped into the row after the change.",
        choices=("", "debezium"),
    ),
    _row(
        "headwater.key.format",
        Kind.STRING,
        "",
        "Format of the keys, which become columns key_*; string: one column key; empty: binary.",
        choices=(*FORMATS, "string"),
    ),
    _row(
        "headwater.key.schema",
        Kind.STRING,
        "",
        "The keys' schema, as headwater.value.schema.",
    ),
    _row(
        "headwater.typed.variant",
        Kind.BOOLEAN,
        False,
        "JSON values become one VARIANT column, without a schema.",
    ),
    _row(
        "headwater.typed.cluster",
        Kind.LIST,
        (),
        "Columns that compaction sorts the typed table's files by; empty: the key.",
    ),
    _row(
        "headwater.latest.enable",
        Kind.BOOLEAN,
        False,
        "Keep TOPIC_latest: the latest row per key, by MERGE; a tombstone deletes.",
    ),
    _row(
        "headwater.latest.interval.ms",
        Kind.LONG,
        60_000,
        "Interval of the merges into TOPIC_latest.",
        unit="ms",
        minimum=1,
    ),
)

"""Options under the names of Spark's Kafka source, and errors that name the wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import UsageError
from headwater_spark.kafka_options import (
    SINK_REFUSED,
    SINK_WITHOUT_EFFECT,
    SOURCE_REFUSED,
    SOURCE_WITHOUT_EFFECT,
)
from headwater_spark.options import EARLIEST, LATEST
from headwater_spark.sink.sink_options import sink_options
from headwater_spark.source.source_options import TableStart, source_options

PAGE = Path(__file__).resolve().parents[3] / "docs" / "spark.md"

GIVEN = {"kafka.bootstrap.servers": "h:1", "subscribe": "b, a"}


def test_defaults_differ_for_batch_and_stream() -> None:
    batch = source_options(GIVEN, streaming=False)
    stream = source_options(GIVEN, streaming=True)
    assert batch.starting.default == EARLIEST and batch.ending.default == LATEST
    assert stream.starting.default == LATEST
    assert batch.subscription.topics == ("a", "b")
    assert batch.isolation_level == "read_committed" and batch.fail_on_data_loss


def test_names_are_case_insensitive_and_bootstrap_has_a_short_form() -> None:
    options = source_options(
        {"BOOTSTRAP.SERVERS": "h:1", "SubscribePattern": "fl.*", "STARTINGOFFSETS": "earliest"},
        streaming=True,
    )
    assert options.bootstrap_servers == "h:1"
    assert options.subscription.wants("flights") and not options.subscription.wants("a-fl")
    assert options.starting.default == EARLIEST


def test_json_offsets_and_assign() -> None:
    options = source_options(
        {
            "bootstrap.servers": "h:1",
            "assign": '{"a":[1,0]}',
            "startingOffsets": '{"a":{"0":23,"1":-2}}',
            "endingOffsets": '{"a":{"0":-1,"1":50}}',
        },
        streaming=False,
    )
    assert options.subscription.assigned == (("a", 0), ("a", 1))
    assert options.starting.offsets == {("a", 0): 23, ("a", 1): -2}
    assert options.ending.offsets == {("a", 0): -1, ("a", 1): 50}


def test_timestamps() -> None:
    one = source_options({**GIVEN, "startingTimestamp": "1000"}, streaming=True)
    assert one.starting.timestamp_ms(("a", 5)) == 1000
    some = source_options({**GIVEN, "startingOffsetsByTimestamp": '{"a":{"0":7}}'}, streaming=True)
    assert some.starting.timestamp_ms(("a", 0)) == 7
    assert some.starting.timestamp_ms(("a", 1)) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15m", 900), ("30s", 30), ("2 h", 7200), ("500ms", 0.5), ("250", 0.25), ("1D", 86400)],
)
def test_the_longest_wait_for_a_batch_is_a_duration_of_sparks(text: str, seconds: float) -> None:
    options = source_options({**GIVEN, "maxTriggerDelay": text}, streaming=True)
    assert options.max_trigger_delay_s == pytest.approx(seconds)


def test_a_batch_waits_for_a_quarter_of_an_hour_unless_told() -> None:
    options = source_options({**GIVEN, "minOffsetsPerTrigger": "7"}, streaming=True)
    assert (options.min_offsets_per_trigger, options.max_trigger_delay_s) == (7, 900)


@pytest.mark.parametrize(
    ("given", "start"),
    [
        ({"fromDeltaVersion": "12"}, TableStart(version=12)),
        ({"fromDeltaVersion": '{"a":12,"b":0}'}, TableStart(versions={"a": 12, "b": 0})),
        ({"fromTimestamp": "2026-11-24"}, TableStart(time_ms=1795478400000)),
        ({"fromTimestamp": "2026-11-24T10:00:00.5Z"}, TableStart(time_ms=1795514400500)),
        ({"fromTimestamp": "2026-11-24 11:00:00+01:00"}, TableStart(time_ms=1795514400000)),
    ],
)
def test_a_start_from_a_table(given: dict[str, str], start: TableStart) -> None:
    for streaming in (True, False):
        assert source_options({**GIVEN, **given}, streaming=streaming).from_table == start


def test_a_subscription_reads_its_partitions() -> None:
    assigned = source_options(
        {"bootstrap.servers": "h:1", "assign": '{"a":[1]}'}, streaming=True
    ).subscription
    assert assigned.reads("a", 1) and not assigned.reads("a", 0)
    assert source_options(GIVEN, streaming=True).subscription.reads("b", 99)


def test_storage_options_are_collected() -> None:
    options = source_options(
        {**GIVEN, "headwater.storage.aws_region": "eu", "headwater.tables.uri": "s3://b"},
        streaming=False,
    )
    assert options.storage_options == (("aws_region", "eu"),)
    assert options.tables_uri == "s3://b"


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"startingOfsets": "earliest"}, "did you mean 'startingOffsets'"),
        ({"frobnicate": "1"}, "unknown option 'frobnicate'"),
        ({"startingOffsets": "first"}, "startingOffsets"),
        ({"startingOffsets": '{"a":{"x":1}}'}, "startingOffsets"),
        ({"startingOffsets": '{"a":5}'}, "needs partitions"),
        ({"startingOffsets": "latest"}, "can't start at latest"),
        ({"endingOffsets": "earliest"}, "can't end at earliest"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "more than"),
        ({"maxTriggerDelay": "soon"}, "must be a duration, e.g. 15m"),
        ({"maxTriggerDelay": "5 weeks"}, "must be a duration, e.g. 15m"),
        ({"fromDeltaVersion": "first"}, "fromDeltaVersion"),
        ({"fromDeltaVersion": '{"a":-1}'}, "versions of tables"),
        ({"fromDeltaVersion": "{}"}, "versions of tables"),
        ({"fromTimestamp": "yesterday"}, "must be a date or time"),
        ({"fromTimestamp": "2026-11-24", "fromDeltaVersion": "1"}, "both say where to start"),
        ({"fromDeltaVersion": "1", "startingOffsets": "earliest"}, "both say where to start"),
        ({"pushdown": "yes"}, "pushdown"),
        ({"minPartitions": "many"}, "minPartitions"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss"),
        ({"kafka.isolation.level": "dirty"}, "kafka.isolation.level"),
        ({"assign": '{"a":[0]}'}, "exactly one"),
        ({"subscribe": "a b"}, "option 'subscribe': topic 'a b'"),
        ({"maxOffsetsPerTrigger": "²"}, "at least 1, not '²'"),
        ({"startingOffsets": '{"a":{"0":9223372036854775808}}'}, "not allowed"),
        ({"startingOffsets": '{"a":{"2147483648":1}}'}, "not allowed"),
        ({"startingOffsets": "5"}, "got '5'"),
        ({"kafka.bootstrap.servers": "a:b"}, "'kafka.bootstrap.servers': .* is not host:port"),
    ],
)
def test_bad_source_options(extra: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        source_options({**GIVEN, **extra}, streaming=False)


@pytest.mark.parametrize(
    ("assign", "words"),
    [
        ('{"a":0}', r"topic 'a' needs a list of partitions, e.g. {\"flights\":\[0,2\]}; got 0"),
        ('{"a":["0"]}', "'0' is no partition of topic 'a'"),
        ('{"a":[-1]}', "-1 is no partition"),
        ('{"a":[true]}', "True is no partition"),
        ('{"a b":[0]}', "topic 'a b'"),
        ('{"a":[]}', "names no partition"),
        ("[0]", "must be a JSON object"),
    ],
)
def test_bad_assignments(assign: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        source_options({"bootstrap.servers": "h:1", "assign": assign}, streaming=True)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(UsageError, match="endingOffsets"):
        source_options({**GIVEN, "endingOffsets": "latest"}, streaming=True)


def test_missing_servers_and_topics() -> None:
    with pytest.raises(UsageError, match="bootstrap"):
        source_options({"subscribe": "a"}, streaming=False)
    with pytest.raises(UsageError, match="exactly one"):
        source_options({"bootstrap.servers": "h:1"}, streaming=False)


def test_sink_options() -> None:
    options = sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t", "path": "ignored"})
    assert options.topic == "t" and options.compression_type is None
    assert sink_options({"bootstrap.servers": "h:1", "kafka.compression.type": "LZ4"}).topic is None
    with pytest.raises(UsageError, match="acks"):
        sink_options({"bootstrap.servers": "h:1", "kafka.acks": "1"})
    with pytest.raises(UsageError, match="unknown option"):
        sink_options({"bootstrap.servers": "h:1", "subscribe": "a"})


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"headwater.delivery": "at-most-once"}, "exactly-once, at-least-once"),
        ({"headwater.sink.id": "a b"}, "letters, digits"),
        ({"headwater.sink.id": ""}, "needs a name as topics have.*empty"),
        ({"topic": ""}, "option 'topic' is ''.*empty"),
        ({"headwater.sink.id": "x" * 250}, "249 are allowed"),
        ({"headwater.sink.id": "alerts.1"}, "may not be a number"),
        ({"headwater.sink.id": "x", "headwater.delivery": "at-least-once"}, "leave it out"),
        ({"headwater.sink.name": "x"}, "did you mean 'headwater.sink.id'"),
    ],
)
def test_bad_delivery_options(extra: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        sink_options({**TO, **extra})


def test_a_sink_is_exactly_once_unless_told_otherwise() -> None:
    assert sink_options(TO).is_exactly_once
    assert not sink_options({**TO, "headwater.delivery": "At-Least-Once"}).is_exactly_once
    assert sink_options({**TO, "headwater.sink.id": "alerts.v1"}).sink_id == "alerts.v1"


TO = {"kafka.bootstrap.servers": "h:1", "topic": "t"}


def test_options_of_kafkas_client_that_only_tune_it_are_taken() -> None:
    source = source_options({**GIVEN, **dict.fromkeys(SOURCE_WITHOUT_EFFECT, "1")}, streaming=True)
    assert source == source_options(GIVEN, streaming=True)
    sink = sink_options({**TO, **dict.fromkeys(SINK_WITHOUT_EFFECT, "1")})
    assert sink == sink_options(TO)


@pytest.mark.parametrize(("name", "why"), SOURCE_REFUSED.items())
def test_options_that_would_change_what_is_read_are_refused(name: str, why: str) -> None:
    with pytest.raises(UsageError) as refusal:
        source_options({**GIVEN, name.upper(): "1"}, streaming=True)
    assert str(refusal.value) == f"option {name.upper()!r} is not for a headwater source: {why}"


@pytest.mark.parametrize(("name", "why"), SINK_REFUSED.items())
def test_options_that_would_change_what_is_written_are_refused(name: str, why: str) -> None:
    with pytest.raises(UsageError) as refusal:
        sink_options({**TO, name: "1"})
    assert str(refusal.value) == f"option {name!r} is not for a headwater sink: {why}"


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "plaintext"])
def test_the_security_protocol_that_is_served_is_taken(protocol: str) -> None:
    given = {"kafka.security.protocol": protocol}
    assert source_options({**GIVEN, **given}, streaming=False).bootstrap_servers == "h:1"
    assert sink_options({**TO, **given}).topic == "t"


def test_the_client_id_is_taken() -> None:
    named = {"kafka.client.id": "etl"}
    assert source_options({**GIVEN, **named}, streaming=False).client_id == "etl"
    assert sink_options({**TO, **named}).client_id == "etl"


def test_the_page_lists_every_name() -> None:
    page = PAGE.read_text()
    names = (*SOURCE_WITHOUT_EFFECT, *SINK_WITHOUT_EFFECT, *SOURCE_REFUSED, *SINK_REFUSED)
    assert [name for name in names if f"`{name.removeprefix('kafka.')}`" not in page] == []

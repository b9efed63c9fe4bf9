"""docs/migrating.md is true: each pair of programs, the foreign one with its real library, says the
same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer as ConfluentProducer
from kafka import KafkaConsumer, KafkaProducer

from headwater_broker.testing import InProcessBroker

PAGE = Path(__file__).resolve().parents[3] / "docs" / "migrating.md"
SECTIONS = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
PAIRS = {
    section.splitlines()[0]: re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    for section in SECTIONS
}
LIBRARIES = {"confluent-kafka": "confluent_kafka", "kafka-python": "kafka", "aiokafka": "aiokafka"}
SAID = "b'N14228' b'late' [('gate', b'7')]"


@pytest.mark.parametrize("library", LIBRARIES)
def test_both_say_the_same(
    library: str,
    headwater_broker: InProcessBroker,
    headwater_bootstrap: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    theirs, ours = PAIRS[library]
    assert f"from {LIBRARIES[library]} import" in theirs
    for number, text in enumerate((theirs, ours)):
        assert len([row for row in text.splitlines() if row]) <= 10
        topic = headwater_broker.topic()
        text = text.replace("127.0.0.1:9092", headwater_bootstrap)
        text = text.replace('"flights"', f'"{topic}"').replace("delays", f"delays-{number}")
        code = compile(text, f"{PAGE.name}, {library} {number + 1}", "exec", dont_inherit=True)
        exec(code, {"__name__": "__main__"})
        assert capsys.readouterr().out.strip() == SAID


def test_each_library_has_its_pair() -> None:
    assert {name for name, programs in PAIRS.items() if len(programs) == 2} == set(LIBRARIES)


def test_a_group_goes_on_where_another_client_committed(
    headwater_broker: InProcessBroker, headwater_bootstrap: str, headwater_topic: str
) -> None:
    with headwater_broker.producer() as producer:
        for number in range(4):
            producer.send(headwater_topic, b"%d" % number)
    theirs = KafkaConsumer(
        headwater_topic, bootstrap_servers=headwater_bootstrap, group_id="g",
        auto_offset_reset="earliest", enable_auto_commit=False, max_poll_records=2,
    )  # fmt: skip
    assert [next(theirs).value for _ in range(2)] == [b"0", b"1"]
    theirs.commit()
    theirs.close()
    with headwater_broker.consumer(headwater_topic, group_id="g") as ours:
        rows = iter(ours)
        assert [next(rows).value for _ in range(2)] == [b"2", b"3"]


def test_keys_go_to_the_same_partitions(
    headwater_broker: InProcessBroker, headwater_bootstrap: str
) -> None:
    """As with kafka-python and, told so, librdkafka."""
    topic = headwater_broker.topic(partitions=7)
    keys = [b"key-%d" % number for number in range(50)]
    with headwater_broker.producer() as producer:
        ours = [producer.send(topic, b"v", key=key) for key in keys]
        placed = {key: sent.result(10).partition for key, sent in zip(keys, ours, strict=True)}
    kafka_python = KafkaProducer(bootstrap_servers=headwater_bootstrap)
    theirs = [kafka_python.send(topic, b"v", key=key) for key in keys]
    assert {k: s.get(10).partition for k, s in zip(keys, theirs, strict=True)} == placed
    kafka_python.close()
    found: dict[bytes, int] = {}
    librdkafka = ConfluentProducer(
        {"bootstrap.servers": headwater_bootstrap, "partitioner": "murmur2_random"}
    )
    for key in keys:
        librdkafka.produce(
            topic, b"v", key, callback=lambda _, m: found.update({m.key(): m.partition()})
        )
    assert librdkafka.flush(10) == 0
    assert found == placed

"""The records of consumer groups have Kafka's bytes, and Kafka's are read."""

from __future__ import annotations

from uuid import UUID

from headwater_broker.coordinator.group.consumer import records
from headwater_broker.coordinator.group.consumer.member import ClassicSide, ConsumerMember

T = UUID(int=7)
MODERN = bytes.fromhex(
    "000000000872646b61666b610b2f3132372e302e302e3102027400000493e0"
    "0000"
)  # fmt: skip
"""A member without a classic side: Kafka leaves the tagged field out, and fails to read one that is
there and null."""
BEFORE_EPOCHS = (
    bytes.fromhex("000000000003000000020002") + T.bytes + bytes.fromhex("030000000000000001000100")
)


def modern() -> ConsumerMember:
    return ConsumerMember(
        member_id="m",
        client_id="rdkafka",
        client_host="/127.0.0.1",
        topics=frozenset({"t"}),
        rebalance_timeout_ms=300_000,
    )


def test_a_member_has_kafkas_bytes() -> None:
    record = records.member_record("g", modern())
    assert record.key == b"\x00\x05\x00\x01g\x00\x01m" and record.value == MODERN
    assert records.with_metadata(ConsumerMember(member_id="m"), MODERN) == modern()


def test_a_null_that_is_written_out_is_read_too() -> None:
    value = MODERN[:-1] + b"\x01\x00\x01\xff"
    assert records.with_metadata(ConsumerMember(member_id="m"), value) == modern()


def test_a_classic_side_comes_back() -> None:
    side = ClassicSide(10_000, (("range", b"meta"), ("sticky", b"")))
    member = modern().asking(
        instance_id="i", rack_id="r", client_id="c", client_host="/h", topics=frozenset(),
        regex="t.*", rebalance_timeout_ms=1, assignor="range", classic=side,
    )  # fmt: skip
    value = records.member_record("g", member).value
    assert value is not None
    assert records.with_metadata(ConsumerMember(member_id="m"), value) == member


def test_partitions_without_assignment_epochs_have_the_members() -> None:
    """Kafka before 4.3 wrote none."""
    member = records.with_position(ConsumerMember(member_id="m"), BEFORE_EPOCHS)
    assert (member.epoch, member.previous_epoch, int(member.state)) == (3, 2, 0)
    assert member.assigned == {T: {0: 3, 1: 3}} and member.revoking == {}

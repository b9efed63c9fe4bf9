"""Instructions of police and traffic users: what is read, and what is refused by name."""

from __future__ import annotations

import json

import pytest

from city.instructions import (
    CountInstruction,
    Instruction,
    StopInstruction,
    WatchInstruction,
    parse_instruction,
)
from headwater.errors import UsageError

FACE = tuple(float(n) for n in range(16))


@pytest.mark.parametrize(
    "instruction",
    [
        WatchInstruction("w1", traits=(("plate", "浙A00017"),)),
        WatchInstruction("w2", traits=(("body_colour", "红色"), ("brand", "Jeep"))),
        WatchInstruction("w3", person="P000042", since_ms=17),
        WatchInstruction("w4", face=FACE, likeness=0.8),
        CountInstruction("c1", "face", "330102#1#0#0", 5, since_ms=17),
        StopInstruction("w1"),
    ],
)
def test_an_instruction_survives_its_record(instruction: Instruction) -> None:
    assert parse_instruction(instruction.value()) == instruction


@pytest.mark.parametrize(
    ("told", "named"),
    [
        ([], "not list"),
        ({"action": "watch"}, "instruction_id"),
        ({"instruction_id": "<b>", "action": "watch"}, "instruction_id"),
        ({"instruction_id": "a", "action": "follow"}, "'follow'"),
        ({"instruction_id": "a", "action": "watch"}, "one of vehicle, person, face"),
        ({"instruction_id": "a", "action": "watch", "person": "P", "face": []}, "one of"),
        ({"instruction_id": "a", "action": "watch", "vehicle": {}}, "one or more"),
        ({"instruction_id": "a", "action": "watch", "vehicle": {"wheels": "4"}}, "'wheels'"),
        ({"instruction_id": "a", "action": "watch", "vehicle": {"plate": 4}}, "plate"),
        ({"instruction_id": "a", "action": "watch", "person": "P" * 65}, "64 characters"),
        ({"instruction_id": "a", "action": "watch", "face": [1, 2]}, "16 numbers"),
        ({"instruction_id": "a", "action": "watch", "face": [0] * 16}, "nobody's"),
        ({"instruction_id": "a", "action": "watch", "face": [1] * 16, "likeness": 2}, "likeness"),
        ({"instruction_id": "a", "action": "watch", "person": "P", "since_ms": "noon"}, "'noon'"),
        ({"instruction_id": "a", "action": "count", "what": "bus"}, "'bus'"),
        ({"instruction_id": "a", "action": "count", "what": "face", "minutes": 0}, "minutes 0"),
        ({"instruction_id": "a", "action": "count", "what": "face", "minutes": True}, "True"),
    ],
)
def test_what_is_wrong_is_named(told: object, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        parse_instruction(json.dumps(told).encode())


@pytest.mark.parametrize("value", [None, b"", b"watch him", b"\xff\xfe"])
def test_a_value_that_is_no_json_is_refused(value: bytes | None) -> None:
    with pytest.raises(UsageError, match="JSON object"):
        parse_instruction(value)

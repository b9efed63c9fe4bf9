"""A kernel that decodes Avro records into slots, and leaves to fastavro what it cannot prove.

A record is a program: a step per field of (operation, column or -1, index of null in its union or
-1, argument, first of its words). Each field's type is its column's. The steps of a record's fields
follow its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headwater.columnar.decode_kernels import Int64, is_utf8, read_varint
from headwater.columnar.jit import kernel
from headwater_tier.typed.formats.json_fit import BIGINT_MAX
from headwater_tier.typed.formats.logical_types import DAYS_MAX, DAYS_MIN

NOTHING, BOOLEAN, INTEGER, INSTANT, DAY, SINGLE, DOUBLE, BYTES, TEXT, FIXED, ENUM, RECORD = range(
    12
)
AT_OPERATION, AT_COLUMN, AT_NULL, AT_ARGUMENT, AT_WORDS = range(5)
"""Argument: of INSTANT the factor to microseconds, of FIXED the size, of ENUM the symbols, of
RECORD the steps of its fields."""
PROGRAM_WIDTH = 5
NOT_PROVEN = -1
NO_VALUE = np.int64(0)
Array = Any  # a numpy array: numba infers the type


@kernel
def little_endian(data: Array, at: int, width: int) -> Any:
    """`width` bytes as an unsigned integer, the least first."""
    bits = np.uint64(0)
    for i in range(width):
        bits |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return bits


@kernel
def single_bits(bits: Any) -> Int64:
    """The bits of the double that a single with these bits is."""
    single = np.uint32(bits).view(np.float32)
    return np.float64(single).view(np.int64)


@kernel
def number_at(operation: int, argument: int, data: Array, at: int, end: int) -> tuple[Int64, Int64]:
    """(the slot of a value of fixed size or of a varint, position behind it or NOT_PROVEN)."""
    if operation == DOUBLE:
        if end - at < 8:
            return NO_VALUE, NOT_PROVEN
        return np.int64(little_endian(data, at, 8)), at + 8
    if operation == BOOLEAN:
        if at >= end or data[at] > 1:
            return NO_VALUE, NOT_PROVEN
        return np.int64(data[at]), at + 1
    if operation == SINGLE:
        if end - at < 4:
            return NO_VALUE, NOT_PROVEN
        return single_bits(little_endian(data, at, 4)), at + 4
    value, at = read_varint(data, at, end)
    if at < 0:
        return NO_VALUE, NOT_PROVEN
    if operation == INSTANT:
        limit = BIGINT_MAX // argument  # no product to compare with: it may overflow
        if value > limit or value < -limit:
            return NO_VALUE, NOT_PROVEN
        return value * argument, at
    if operation == DAY and (value < DAYS_MIN or value > DAYS_MAX):
        return NO_VALUE, NOT_PROVEN
    return value, at


@kernel
def text_at(
    operation: int, argument: int, data: Array, at: Any, end: int
) -> tuple[Int64, Int64, Int64]:
    """(begin of a text, its size, position behind it or NOT_PROVEN)."""
    size = argument
    if operation != FIXED:
        size, at = read_varint(data, at, end)
    if at < 0 or size < 0 or size > end - at:
        return NO_VALUE, NO_VALUE, NOT_PROVEN
    if operation == TEXT and not is_utf8(data, at, at + size):
        return NO_VALUE, NO_VALUE, NOT_PROVEN
    return np.int64(at), size, at + size


@kernel
def record_at(
    data: Array,
    at: int,
    end: int,
    row: int,
    stride: int,
    program: Array,
    words: Array,
    values: Array,
    sizes: Array,
    is_valid: Array,
) -> bool:
    """Decode one record into its slots; False when it is not proven."""
    step = -1
    while step + 1 < len(program):
        step += 1
        operation, argument = program[step, AT_OPERATION], program[step, AT_ARGUMENT]
        if program[step, AT_NULL] >= 0:
            branch, at = read_varint(data, at, end)
            if at < 0 or branch < 0 or branch > 1:
                return False
            if branch == program[step, AT_NULL]:
                if operation == RECORD:
                    step += argument
                continue
        if program[step, AT_COLUMN] < 0:
            continue  # it has no bytes
        slot = program[step, AT_COLUMN] * stride + row
        if operation == RECORD:
            is_valid[slot] = 1
            continue
        if operation in (TEXT, BYTES, FIXED):
            values[slot], sizes[slot], at = text_at(operation, argument, data, at, end)
        else:
            values[slot], at = number_at(operation, argument, data, at, end)
        if at < 0:
            return False
        is_valid[slot] = 1
        if operation == ENUM:
            symbol = values[slot]
            if symbol < 0 or symbol >= argument:
                return False
            symbol += program[step, AT_WORDS]
            values[slot], sizes[slot] = words[symbol, 0], words[symbol, 1]
    return at == end


@kernel
def decode_records(
    data: Array,
    begins: Array,
    ends: Array,
    rows: Array,
    program: Array,
    words: Array,
    columns: Array,
    values: Array,
    sizes: Array,
    is_valid: Array,
    is_done: Array,
) -> None:
    """Decode the rows of these numbers into their slots; one that is not done has none valid.

    `words`: slot and size of each symbol; `columns`: those that the program fills.
    """
    stride = len(is_done)
    for row in rows:
        if record_at(data, begins[row], ends[row], row, stride, program, words, values, sizes,
                     is_valid):  # fmt: skip
            is_done[row] = 1
        else:
            for column in columns:
                is_valid[column * stride + row] = 0
                sizes[column * stride + row] = 0

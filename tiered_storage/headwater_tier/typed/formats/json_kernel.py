"""A kernel that decodes JSON objects into slots, and leaves to others what it cannot prove.

It takes white space, keys as the columns are named, null, booleans, integers of up to 18 digits,
doubles of up to 17, texts without escapes in valid UTF-8, and objects of these. Of arrays and other
columns it finds the text. A row with anything else is not done.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headwater.columnar.decode_kernels import is_utf8
from headwater.columnar.jit import kernel
from headwater_tier.typed.formats.exact_doubles import (
    CLINGER_DIGITS_MAX,
    CLINGER_EXPONENT_MAX,
    POWERS_OF_TEN,
    nearest_bits,
)
from headwater_tier.typed.formats.json_scan import (
    BACKSLASH,
    CLOSE_ARRAY,
    CLOSE_OBJECT,
    COLON,
    COMMA,
    FRACTION_DIGITS_MAX,
    INTEGER_DIGITS_MAX,
    LARGE_E,
    MINUS,
    NINE,
    OPEN_ARRAY,
    OPEN_OBJECT,
    PLUS,
    POINT,
    QUOTE,
    SMALL_E,
    SPACE,
    ZERO,
    end_of_string,
    is_simple,
    skip_space,
)
from headwater_tier.typed.formats.slots import (
    KIND_BIGINT,
    KIND_BOOLEAN,
    KIND_DOUBLE,
    KIND_RAW,
    KIND_STRUCT,
    KIND_TEXT,
)

AT_KIND, AT_FIRST, AT_COUNT = range(3)
"""Of a row of the tree of columns: its kind; of a struct, where its fields are."""
LETTER_N, LETTER_T, LETTER_F = 0x6E, 0x74, 0x66
NULL_REST = np.frombuffer(b"ull", np.uint8)
TRUE_REST = np.frombuffer(b"rue", np.uint8)
FALSE_REST = np.frombuffer(b"alse", np.uint8)
EXPONENT_CHARS_MAX = 3
SIGN_BIT = np.uint64(1 << 63)
NOT_PROVEN = -1
NOTHING = np.int64(0)
Array = Any  # a numpy array: numba infers the type
Int64 = Any  # int for Python, np.int64 for the kernels


@kernel
def literal(data: Array, at: int, end: int, rest: Array) -> int:
    """The position behind a literal whose first letter is at `at`; NOT_PROVEN if it is none."""
    if end - at <= len(rest):
        return NOT_PROVEN
    for i in range(len(rest)):
        if data[at + 1 + i] != rest[i]:
            return NOT_PROVEN
    return at + 1 + len(rest)


@kernel
def digits_from(data: Array, at: int, end: int, value: Int64) -> tuple[Int64, Int64]:
    """(value with the digits at `at` appended, position behind them), for up to 18 in all."""
    while at < end and ZERO <= data[at] <= NINE:
        value = value * 10 + (np.int64(data[at]) - ZERO)
        at += 1
    return value, at


@kernel
def integer(data: Array, at: int, end: int) -> tuple[Int64, Int64]:
    """(an integer, the position behind it or NOT_PROVEN)."""
    is_negative = data[at] == MINUS
    if is_negative:
        at += 1
    begin = at
    value, at = digits_from(data, at, min(end, begin + INTEGER_DIGITS_MAX), np.int64(0))
    if at == begin or (data[begin] == ZERO and at - begin > 1):
        return NOTHING, NOT_PROVEN
    # What follows a number is no digit, point or exponent: the caller checks.
    return -value if is_negative else value, at


@kernel
def exponent_at(data: Array, at: int, end: int) -> tuple[Int64, Int64]:
    """(exponent, position behind it or NOT_PROVEN) of the text behind the letter e."""
    is_negative = at < end and data[at] == MINUS
    if at < end and (data[at] == MINUS or data[at] == PLUS):
        at += 1
    value, behind = digits_from(data, at, min(end, at + EXPONENT_CHARS_MAX), np.int64(0))
    if behind == at:
        return 0, NOT_PROVEN
    return -value if is_negative else value, behind


@kernel
def double_bits(value: Any) -> Int64:
    """The bits of a double, as an integer."""
    return np.float64(value).view(np.int64)


@kernel
def double(data: Array, at: int, end: int) -> tuple[Int64, Int64]:
    """(the bits of a double, the position behind it or NOT_PROVEN)."""
    is_negative = data[at] == MINUS
    if is_negative:
        at += 1
    begin, limit = at, min(end, at + FRACTION_DIGITS_MAX)
    digits, at = digits_from(data, at, limit, np.int64(0))
    if at == begin or (data[begin] == ZERO and at - begin > 1):
        return NOTHING, NOT_PROVEN
    exponent, is_integer = np.int64(0), True
    if at < end and data[at] == POINT:
        point = at
        first = begin if digits else at
        limit = min(end, first + FRACTION_DIGITS_MAX + 2)
        digits, at = digits_from(data, at + 1, limit, digits)
        exponent, is_integer = np.int64(point + 1 - at), False
        if exponent == 0:
            return NOTHING, NOT_PROVEN
        if digits >= 100_000_000_000_000_000:
            return NOTHING, NOT_PROVEN  # an 18th digit
    if at < end and (data[at] == SMALL_E or data[at] == LARGE_E):
        power, at = exponent_at(data, at + 1, end)
        if at < 0:
            return NOTHING, NOT_PROVEN
        exponent, is_integer = exponent + power, False
    if is_integer and (digits > CLINGER_DIGITS_MAX or (is_negative and digits == 0)):
        return NOTHING, NOT_PROVEN
    if digits <= CLINGER_DIGITS_MAX and -CLINGER_EXPONENT_MAX <= exponent <= CLINGER_EXPONENT_MAX:
        value = np.float64(digits)
        if exponent < 0:
            value = value / POWERS_OF_TEN[-exponent]
        else:
            value = value * POWERS_OF_TEN[exponent]
        return double_bits(-value if is_negative else value), at
    if digits == 0:
        return NOTHING, NOT_PROVEN
    is_sure, bits = nearest_bits(np.uint64(digits), exponent)
    return np.int64(bits | SIGN_BIT if is_negative else bits), at if is_sure else NOT_PROVEN


@kernel
def plain_text(data: Array, at: int, end: int) -> int:
    """The position of the quote behind a text without escapes that begins at `at`; NOT_PROVEN if
    it has any, a control character, bytes that are no UTF-8, or no end."""
    begin, is_ascii = at, True
    while at < end:
        byte = data[at]
        if byte == QUOTE:
            return at if is_ascii or is_utf8(data, begin, at) else NOT_PROVEN
        if byte == BACKSLASH or byte < SPACE:
            return NOT_PROVEN
        if byte >= 0x80:
            is_ascii = False
        at += 1
    return NOT_PROVEN


@kernel
def is_key(data: Array, at: int, end: int, names: Array, begin: int, size: int) -> bool:
    """True when the text at `at` is the name and its closing quote."""
    if end - at <= size or data[at + size] != QUOTE:
        return False
    for i in range(size):  # noqa: SIM110 - numba has no generators
        if data[at + i] != names[begin + i]:
            return False
    return True


@kernel
def column_of(
    data: Array,
    at: int,
    end: int,
    names: Array,
    offsets: Array,
    first: Int64,
    count: Int64,
    expected: Int64,
) -> Int64:
    """The column, of `count` from `first` on, whose name is the key at `at`; the expected one is
    tried first. NOT_PROVEN if none."""
    column = expected
    for _ in range(count):
        if is_key(data, at, end, names, offsets[column], offsets[column + 1] - offsets[column]):
            return column
        column = column + 1 if column + 1 < first + count else first
    return NOT_PROVEN


@kernel
def raw_value(data: Array, at: int, end: int) -> int:
    """The position behind a value whose text orjson may read; NOT_PROVEN if it may not."""
    begin, depth = at, 0
    while at < end:
        byte = data[at]
        if byte == QUOTE:
            at = end_of_string(data, at + 1, end)
        elif byte in (OPEN_OBJECT, OPEN_ARRAY):
            depth += 1
        elif byte in (CLOSE_OBJECT, CLOSE_ARRAY):
            if depth == 0:
                break
            depth -= 1
        elif depth == 0 and (byte == COMMA or byte <= SPACE):
            break
        at += 1
    return at if begin < at < end and is_simple(data, begin, at) else NOT_PROVEN


@kernel
def value_at(data: Array, at: int, end: int, kind: int) -> tuple[Int64, Int64]:
    """(what goes into the slot of a column of this kind, the position behind the value or
    NOT_PROVEN)."""
    byte = data[at]
    if kind == KIND_RAW:
        return np.int64(at), raw_value(data, at, end)
    if kind == KIND_TEXT and byte == QUOTE:
        close = plain_text(data, at + 1, end)
        return np.int64(at + 1), close + 1 if close >= 0 else NOT_PROVEN
    if kind == KIND_BIGINT:
        return integer(data, at, end)
    if kind == KIND_DOUBLE:
        return double(data, at, end)
    if kind == KIND_BOOLEAN and byte == LETTER_T:
        return np.int64(1), literal(data, at, end, TRUE_REST)
    if kind == KIND_BOOLEAN and byte == LETTER_F:
        return NOTHING, literal(data, at, end, FALSE_REST)
    return NOTHING, NOT_PROVEN


@kernel
def behind_colon(data: Array, at: int, end: int) -> int:
    """The position of the value behind a colon; NOT_PROVEN if there is none."""
    at = skip_space(data, at, end)
    if at >= end or data[at] != COLON:
        return NOT_PROVEN
    at = skip_space(data, at + 1, end)
    return at if at < end else NOT_PROVEN


@kernel
def object_at(  # noqa: C901 - the grammar of an object, in one pass
    data: Array,
    at: int,
    end: int,
    row: int,
    stride: int,
    columns: int,
    names: Array,
    offsets: Array,
    tree: Array,
    values: Array,
    sizes: Array,
    is_valid: Array,
    seen: Array,
    above: Array,
) -> int:
    """Decode the object whose brace is before `at`; the position behind it, or NOT_PROVEN.

    A column's slots begin at its number times `stride`. `seen`: the last row that had a column.
    `above`: a stack of objects. A function that calls itself would crash out of numba's cache.
    """
    first, count, near = np.int64(0), np.int64(columns), np.int64(0)
    depth, has_field = 0, False
    while True:
        at = skip_space(data, at, end)
        if at >= end:
            return NOT_PROVEN
        if data[at] == CLOSE_OBJECT:
            at += 1
            if depth == 0:
                return at
            depth -= 1
            first, count, near = above[depth, 0], above[depth, 1], above[depth, 2]
            has_field = True
            continue
        if has_field:
            if data[at] != COMMA:
                return NOT_PROVEN
            at = skip_space(data, at + 1, end)
        if at >= end or data[at] != QUOTE:
            return NOT_PROVEN
        column = column_of(data, at + 1, end, names, offsets, first, count, near)
        if column < 0 or seen[column] == row:
            return NOT_PROVEN
        at = behind_colon(data, at + 2 + offsets[column + 1] - offsets[column], end)
        if at < 0:
            return NOT_PROVEN
        seen[column] = row
        near = column + 1 if column + 1 < first + count else first
        begin, kind, slot = at, tree[column, AT_KIND], column * stride + row
        has_field = True
        if data[at] == LETTER_N:
            at = literal(data, at, end, NULL_REST)
        elif kind == KIND_STRUCT and data[at] == OPEN_OBJECT:
            is_valid[slot] = 1
            above[depth, 0], above[depth, 1], above[depth, 2] = first, count, near
            depth += 1
            first, count = tree[column, AT_FIRST], tree[column, AT_COUNT]
            near, has_field, at = first, False, at + 1
        else:
            values[slot], at = value_at(data, at, end, kind)
            is_valid[slot] = 1
            sizes[slot] = at - begin if kind == KIND_RAW else at - begin - 2
        if at < 0:
            return NOT_PROVEN


@kernel
def decode_objects(
    data: Array,
    begins: Array,
    ends: Array,
    rows: Array,
    columns: int,
    names: Array,
    offsets: Array,
    tree: Array,
    values: Array,
    sizes: Array,
    is_valid: Array,
    is_done: Array,
) -> None:
    """Decode the rows of these numbers into their slots; one that is not done has none valid.

    `columns`: those of the table, the first of `tree`.
    """
    stride = len(is_done)
    seen = np.full(len(tree), -1, np.int64)
    above = np.zeros((len(tree) + 1, 3), np.int64)
    for row in rows:
        end = ends[row]
        at = skip_space(data, begins[row], end)
        if at < end and data[at] == OPEN_OBJECT:
            at = object_at(
                data, at + 1, end, row, stride, columns, names, offsets, tree, values, sizes,
                is_valid, seen, above
            )  # fmt: skip
        else:
            at = NOT_PROVEN
        if at >= 0 and skip_space(data, at, end) == end:
            is_done[row] = 1
        else:
            for column in range(len(tree)):
                is_valid[column * stride + row] = 0
                sizes[column * stride + row] = 0

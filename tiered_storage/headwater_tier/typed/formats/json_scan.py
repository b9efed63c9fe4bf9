"""A kernel that proves of a JSON text what orjson hides: no equal keys, no number that it rounds.

It proves nothing about the text being JSON: that is orjson's. It may fail to prove; the exact way
then decides.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headwater.columnar.jit import kernel

DEPTH_MAX = 64
KEYS_MAX = 512
"""Of the objects that are open at a time."""
INTEGER_DIGITS_MAX = 18
FRACTION_DIGITS_MAX = 17
EXPONENT_DIGITS_MAX = 2
SPACE = 0x20
QUOTE, BACKSLASH, COLON, COMMA = 0x22, 0x5C, 0x3A, 0x2C
OPEN_OBJECT, CLOSE_OBJECT, OPEN_ARRAY, CLOSE_ARRAY = 0x7B, 0x7D, 0x5B, 0x5D
MINUS, PLUS, POINT, ZERO, NINE = 0x2D, 0x2B, 0x2E, 0x30, 0x39
SMALL_E, LARGE_E = 0x65, 0x45
Array = Any  # a numpy array: numba infers the type


@kernel
def end_of_string(data: Array, at: int, end: int) -> int:
    """The position of the quote that closes the string whose text begins at `at`; `end` if none."""
    while at < end and data[at] != QUOTE:
        at += 2 if data[at] == BACKSLASH else 1
    return min(at, end)


@kernel
def skip_space(data: Array, at: int, end: int) -> int:
    """The position behind JSON's white space."""
    while at < end and (data[at] == SPACE or data[at] == 0x0A or data[at] == 0x0D or data[at] == 9):
        at += 1
    return at


@kernel
def same_bytes(data: Array, first: int, second: int, size: int) -> bool:
    """True when the two ranges hold the same bytes."""
    for i in range(size):  # noqa: SIM110 - numba has no generators
        if data[first + i] != data[second + i]:
            return False
    return True


@kernel
def short_number(data: Array, at: int, end: int) -> int:
    """The position behind a number that is held exactly by orjson's int or float; -1 if unsure."""
    digits, exponent_digits = 0, 0
    is_fraction, is_exponent = False, False
    while at < end:
        byte = data[at]
        if ZERO <= byte <= NINE:
            if is_exponent:
                exponent_digits += 1
            else:
                digits += 1
        elif byte == POINT:
            is_fraction = True
        elif byte in (SMALL_E, LARGE_E):
            is_exponent = True
        elif byte != MINUS and byte != PLUS:
            break
        at += 1
    limit = FRACTION_DIGITS_MAX if is_fraction or is_exponent else INTEGER_DIGITS_MAX
    if digits > limit or exponent_digits > EXPONENT_DIGITS_MAX:
        return -1
    return at


@kernel
def is_new_key(keys: Array, first: int, count: int, data: Array) -> bool:
    """True when the last of the keys equals no other of its object."""
    begin, size = keys[count - 1, 0], keys[count - 1, 1]
    for i in range(first, count - 1):
        if keys[i, 1] == size and same_bytes(data, keys[i, 0], begin, size):
            return False
    return True


@kernel
def has_escape(data: Array, at: int, end: int) -> bool:
    """True when there is a backslash."""
    for i in range(at, end):  # noqa: SIM110 - numba has no generators
        if data[i] == BACKSLASH:
            return True
    return False


@kernel
def is_simple(data: Array, at: int, end: int) -> bool:
    """True when no object in data[at:end] has equal keys, and numbers are short."""
    keys = np.empty((KEYS_MAX, 2), np.int64)
    firsts = np.empty(DEPTH_MAX, np.int64)
    depth, count = 0, 0
    while at < end:
        byte = data[at]
        if byte == QUOTE:
            begin = at + 1
            close = end_of_string(data, begin, end)
            at = skip_space(data, close + 1, end)
            if at < end and data[at] == COLON:
                if depth == 0 or count == KEYS_MAX or has_escape(data, begin, close):
                    return False
                keys[count, 0], keys[count, 1] = begin, close - begin
                count += 1
                if not is_new_key(keys, firsts[depth - 1], count, data):
                    return False
        elif byte in (OPEN_OBJECT, OPEN_ARRAY):
            if depth == DEPTH_MAX:
                return False
            firsts[depth] = count
            depth += 1
            at += 1
        elif byte in (CLOSE_OBJECT, CLOSE_ARRAY):
            if depth == 0:
                return False
            depth -= 1
            count = firsts[depth]
            at += 1
        elif byte == MINUS or ZERO <= byte <= NINE:
            at = short_number(data, at, end)
            if at < 0:
                return False
        else:
            at += 1
    return True

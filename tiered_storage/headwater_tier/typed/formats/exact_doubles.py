"""Decimals to the nearest double, as a kernel: Clinger's fast path, then Eisel and Lemire's.

"Number Parsing at a Gigabyte per Second" (Lemire, 2021), for decimals of up to 19 digits in the
range of exponents that has neither subnormal nor infinite results. Where it is not sure it says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headwater.columnar.jit import kernel

EXPONENT_MAX = 100
"""Of ten, positive or negative: 19 digits then stay far from the ends of the doubles."""
CLINGER_EXPONENT_MAX = 22
CLINGER_DIGITS_MAX = 1 << 53
_BITS_128 = 1 << 128


def _power_of_five(exponent: int) -> int:
    """The upper 128 bits of 5^exponent, rounded down; of a negative one rounded up."""
    if exponent >= 0:
        power: int = 5**exponent
        return (
            power << (128 - power.bit_length())
            if power < _BITS_128
            else power >> (power.bit_length() - 128)
        )
    power = 5**-exponent
    bits = (power - 1).bit_length()  # least z with 2^z >= power
    quotient = (1 << (bits + 127 if exponent >= -27 else 2 * bits + 128)) // power + 1
    return quotient >> max(0, quotient.bit_length() - 128)


_POWERS = [_power_of_five(exponent) for exponent in range(-EXPONENT_MAX, EXPONENT_MAX + 1)]
POWERS_OF_FIVE = np.array([[p >> 64, p & ((1 << 64) - 1)] for p in _POWERS], np.uint64)
POWERS_OF_TEN = np.array([10.0**exponent for exponent in range(CLINGER_EXPONENT_MAX + 1)])
LOW_32 = np.uint64(0xFFFFFFFF)
ALL_64 = np.uint64(0xFFFFFFFFFFFFFFFF)
ZERO_64, ONE_64, TWO_64, THREE_64 = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(3)
THIRTY_TWO, FIFTY_TWO, SIXTY_THREE = np.uint64(32), np.uint64(52), np.uint64(63)
NINE_64 = np.uint64(9)
Float = Any  # float for Python, np.float64 for the kernels
Word = Any  # np.uint64


@kernel
def upper_product(a: Word, b: Word) -> Word:
    """The upper 64 bits of the product of two 64-bit integers."""
    a_low, a_high = a & LOW_32, a >> THIRTY_TWO
    b_low, b_high = b & LOW_32, b >> THIRTY_TWO
    middle = a_high * b_low + ((a_low * b_low) >> THIRTY_TWO)
    other = a_low * b_high + (middle & LOW_32)
    return a_high * b_high + (middle >> THIRTY_TWO) + (other >> THIRTY_TWO)


@kernel
def leading_zeros(value: Word) -> int:
    """Zero bits above the highest one bit; the value is not 0."""
    zeros = 0
    step = 32
    while step:
        if value >> np.uint64(64 - step) == ZERO_64:
            value = value << np.uint64(step)
            zeros += step
        step >>= 1
    return zeros


@kernel
def nearest_bits(digits: Word, exponent: Any) -> tuple[bool, Word]:
    """(whether it is sure, the bits of the double nearest to digits * 10^exponent, positive)."""
    if exponent < -EXPONENT_MAX or exponent > EXPONENT_MAX:
        return False, ZERO_64
    zeros = leading_zeros(digits)
    word = digits << np.uint64(zeros)
    power_high = POWERS_OF_FIVE[exponent + EXPONENT_MAX, 0]
    high, low = upper_product(word, power_high), word * power_high
    if high & np.uint64(0x1FF) == np.uint64(0x1FF):
        more = upper_product(word, POWERS_OF_FIVE[exponent + EXPONENT_MAX, 1])
        low = low + more
        if more > low:
            high = high + ONE_64
        if low == ALL_64 and (exponent < -27 or exponent > 55):
            return False, ZERO_64
    upper = high >> SIXTY_THREE
    shift = upper + NINE_64
    mantissa = high >> shift
    power = ((217706 * exponent) >> 16) + 63 + np.int64(upper) - zeros + 1023
    is_tie = low <= ONE_64 and -4 <= exponent <= 23 and mantissa & THREE_64 == ONE_64
    if is_tie and mantissa << shift == high:
        mantissa = mantissa & ~ONE_64
    mantissa = (mantissa + (mantissa & ONE_64)) >> ONE_64
    if mantissa >= TWO_64 << FIFTY_TWO:
        mantissa = ONE_64 << FIFTY_TWO
        power += 1
    mantissa = mantissa & ~(ONE_64 << FIFTY_TWO)
    return True, mantissa | (np.uint64(power) << FIFTY_TWO)


@kernel
def nearest_double(digits: Word, exponent: int) -> tuple[bool, Float]:
    """(whether it is sure, the double nearest to digits * 10^exponent)."""
    if digits == ZERO_64:
        return True, 0.0
    if digits <= np.uint64(CLINGER_DIGITS_MAX):
        if 0 <= exponent <= CLINGER_EXPONENT_MAX:
            return True, np.float64(digits) * POWERS_OF_TEN[exponent]
        if -CLINGER_EXPONENT_MAX <= exponent < 0:
            return True, np.float64(digits) / POWERS_OF_TEN[-exponent]
    is_sure, bits = nearest_bits(digits, exponent)
    return is_sure, bits_double(bits)


@kernel
def bits_double(bits: Word) -> Float:
    """The double with these bits."""
    box = np.empty(1, np.uint64)
    box[0] = bits
    return box.view(np.float64)[0]

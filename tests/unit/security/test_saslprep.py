"""SASLprep: names that have one spelling only."""

from __future__ import annotations

import pytest

from headwater.security.saslprep import is_prepared, saslprep


@pytest.mark.parametrize("name", ["user", "USER", "a b", "José", "пользователь", "אבג", "a,=b"])
def test_names_that_stay_as_they_are(name: str) -> None:
    assert is_prepared(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "I\u00adX",  # soft hyphen (RFC 4013's example)
        "\u00aa",  # feminine ordinal: becomes "a"
        "\u2168",  # Roman numeral nine: becomes "IX"
        "\u0007",  # control character
        "\u0627\u0031",  # begins from right to left, ends with a digit
        "a\u05d0",  # both directions
        "admin\u202e",  # turns what follows around
        "admin\u200b",
        "a\u00a0b",  # another space
        "Jose\u0301",  # another spelling of José
        "a\0b",
        "\ud800",
        "\U000e0001",
        "\u0378",  # not assigned
    ],
)
def test_names_that_are_refused(name: str) -> None:
    assert not is_prepared(name)


def test_the_examples_of_rfc_4013() -> None:
    assert saslprep("I\u00adX") == "IX"
    assert saslprep("user") == "user"
    assert saslprep("USER") == "USER"
    assert saslprep("\u00aa") == "a"
    assert saslprep("\u2168") == "IX"
    assert saslprep("\u0007") is None
    assert saslprep("\u0627\u0031") is None

"""The values of one listener: `listener.name.<listener>.[<mechanism>.]KEY` over KEY (KIP-103)."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.config.keys import LISTENER_PREFIX, Values, broker_key, broker_values
from headwater.config.rows_security import MECHANISMS, SECURITY_ROWS

OVERRIDABLE = frozenset(
    row.name for row in SECURITY_ROWS if row.name.startswith(("ssl.", "sasl.", "connection"))
)
"""Keys that may be set for one listener."""


def split_override(name: str) -> tuple[str, str, str] | None:
    """(listener, mechanism or "", key) of a key with the prefix; None for every other name.

    Raises UsageError when the key behind the prefix is unknown. Listener and mechanism are in
    lower case.
    """
    if not name.startswith(LISTENER_PREFIX):
        return None
    listener, _, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
    mechanism, _, key = rest.partition(".")
    if mechanism.upper() in MECHANISMS:
        return listener, mechanism, broker_key(key).name
    return listener, "", broker_key(rest).name


def listener_values(properties: Mapping[str, str], listener: str, mechanism: str = "") -> Values:
    """A broker's values as they hold for one listener, and one SASL mechanism of it.

    Raises UsageError for a value that is not valid.
    """
    plain = {
        name: text for name, text in properties.items() if not name.startswith(LISTENER_PREFIX)
    }
    for wanted in ("", mechanism.lower()):
        for name, text in properties.items():
            found = split_override(name)
            if found is not None and found[:2] == (listener.lower(), wanted):
                plain[found[2]] = text
    return broker_values(plain)

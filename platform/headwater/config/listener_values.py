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


def own_keys(properties: Mapping[str, str], listener: str, mechanism: str = "") -> dict[str, str]:
    """What stands behind `listener.name.<listener>.[<mechanism>.]`. Raises UsageError for an
    unknown key."""
    wanted = (listener.lower(), mechanism.lower())
    found = ((split_override(name), text) for name, text in properties.items())
    return {key[2]: text for key, text in found if key is not None and key[:2] == wanted}


def listener_properties(
    properties: Mapping[str, str], listener: str, mechanism: str = ""
) -> dict[str, str]:
    """A broker's properties as they hold for one listener, and one SASL mechanism of it."""
    return {
        **{k: text for k, text in properties.items() if not k.startswith(LISTENER_PREFIX)},
        **own_keys(properties, listener),
        **(own_keys(properties, listener, mechanism) if mechanism else {}),
    }


def listener_values(properties: Mapping[str, str], listener: str, mechanism: str = "") -> Values:
    """A broker's values as they hold for one listener, and one SASL mechanism of it.

    Raises UsageError for a value that is not valid.
    """
    return broker_values(listener_properties(properties, listener, mechanism))

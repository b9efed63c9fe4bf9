"""Writes the sample `conf/broker.properties` from the keys, so that it cannot go stale.

`python -m headwater.config.docs > conf/broker.properties`
"""

from __future__ import annotations

import sys
import textwrap

from headwater.config.keys import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS
from headwater.config.row import ConfigKey, Scope

WIDTH = 100


def sample_properties() -> str:
    """Every broker key, commented out, with its meaning, unit and default."""
    parts = [
        (
            "# Every key of a broker with its default. Remove the # to change one.\n"
            "# Unknown keys are refused. Written by `python -m headwater.config.docs`."
        )
    ]
    parts += [_entry(row) for row in BROKER_KEYS.values() if row.has_effect]
    ignored = ", ".join(sorted(row.name for row in BROKER_KEYS.values() if not row.has_effect))
    parts.append(
        textwrap.fill(
            f"Keys of Kafka that are accepted and have no effect: {ignored}.",
            WIDTH, initial_indent="# ", subsequent_indent="# ",
            break_long_words=False, break_on_hyphens=False,
        )
    )  # fmt: skip
    parts.append(
        "# Topics override, by `headwater configs` or when they are created:\n"
        + "\n".join(f"#   {row.name}: {_facts(row)}" for row in TOPIC_KEYS.values())
    )
    parts.append(
        "# Groups override, by `headwater configs`:\n"
        + "\n".join(f"#   {row.name}: {_facts(row)}" for row in GROUP_KEYS.values())
    )
    return "\n\n".join(parts) + "\n"


def _entry(row: ConfigKey) -> str:
    facts = f"{row.doc} ({_facts(row)})"
    text = textwrap.wrap(facts, WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    lines = [f"# {line}" for line in text]
    return "\n".join([*lines, f"#{row.name}={row.render(row.default)}"])


def _facts(row: ConfigKey) -> str:
    facts = [row.kind.value]
    if row.unit:
        facts.append(f"unit {row.unit}")
    if row.choices:
        facts.append("one of " + ", ".join(row.choices))
    if row.minimum is not None:
        facts.append(f"at least {row.minimum:g}")
    if row.maximum is not None:
        facts.append(f"at most {row.maximum:g}")
    if row.broker_name and row.broker_name != row.name:
        facts.append(f"default from {row.broker_name}")
    if row.scope is Scope.BROKER and row.is_dynamic:
        facts.append("may change while the broker runs")
    return "; ".join(facts)


if __name__ == "__main__":
    sys.stdout.write(sample_properties())

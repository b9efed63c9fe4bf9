"""Values of a broker's own file that stand elsewhere: `${env:NAME}`, `${file:PATH:KEY}`.

Kafka's EnvVarConfigProvider, FileConfigProvider and DirectoryConfigProvider (KIP-297, KIP-421),
without `config.providers`. Only the file that the broker starts with may name them: a client that
may alter configs must not read files and variables of the broker (CVE-2024-31141).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from headwater.config.load import parse_properties
from headwater.errors import UsageError

_PLACEHOLDER = re.compile(r"\$\{(env|file|directory):([^}:]*)(?::([^}]*))?\}")


def resolve_placeholders(
    properties: Mapping[str, str], environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The properties with every placeholder replaced. Raises UsageError that names the key."""

    def resolved(key: str, match: re.Match[str]) -> str:
        kind, where, name = match.groups()
        if kind == "env":
            return _variable(key, where, environment)
        if not where or not name:
            raise UsageError(f"config {key}: {match[0]} is not ${{{kind}:PATH:NAME}}")
        if kind == "directory":
            return _text(key, Path(where, name)).strip()
        rows = parse_properties(_text(key, Path(where)), where)
        if name not in rows:
            raise UsageError(f"config {key}: {where} has no row {name}; add it")
        return rows[name]

    return {
        key: _PLACEHOLDER.sub(lambda match, key=key: resolved(key, match), text)  # type: ignore[misc]
        for key, text in properties.items()
    }


def _variable(key: str, name: str, environment: Mapping[str, str]) -> str:
    if name not in environment:
        raise UsageError(f"config {key}: there is no environment variable {name}; set it")
    return environment[name]


def _text(key: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        text = f"config {key}: {path}: {error.strerror}; name a file that can be read"
        raise UsageError(text) from None

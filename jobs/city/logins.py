"""The login of the city's services: a file of Kafka's client properties, or none."""

from __future__ import annotations

from pathlib import Path

from headwater.client.security_options import SecurityOptions, security_keywords
from headwater.config.java_properties import read_java_properties


def login_of(file: Path | None) -> SecurityOptions:
    """Keywords of `Producer`, `Consumer` and `Admin`."""
    found = {} if file is None else read_java_properties(str(file), "the login")
    return security_keywords(found)

"""`from_config`: a configuration of confluent-kafka (librdkafka's names) or of Kafka's own client,
as keywords of the SDK's.

Dots may be underscores. A name that the client does not have is refused: nothing is dropped in
silence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headwater.client.errors import OptionError
from headwater.client.option_rules import unknown_option
from headwater.client.security_options import SECURITY_OPTIONS
from headwater.errors import UsageError

_RENAMED = {
    "metadata_broker_list": "bootstrap_servers",
    "request_required_acks": "acks",
    "queue_buffering_max_ms": "linger_ms",
    "compression_codec": "compression_type",
    "message_max_bytes": "max_request_size",
    "message_timeout_ms": "delivery_timeout_ms",
    "max_in_flight": "max_in_flight_requests_per_connection",
    "fetch_wait_max_ms": "fetch_max_wait_ms",
    "fetch_message_max_bytes": "max_partition_fetch_bytes",
    "topic_metadata_refresh_interval_ms": "metadata_max_age_ms",
    "sasl_mechanisms": "sasl_mechanism",
    "ssl_ca_pem": "ssl_truststore_certificates",
    "ssl_certificate_pem": "ssl_keystore_certificate_chain",
    "ssl_key_pem": "ssl_keystore_key",
}
_FILES = {
    "ssl_ca_location": "ssl_truststore_certificates",
    "ssl_certificate_location": "ssl_keystore_certificate_chain",
    "ssl_key_location": "ssl_keystore_key",
}
"""librdkafka's names of PEM files: what they hold is an option here."""
_REMEDIES = {
    "error_cb": "give on_error to the class itself",
    "stats_cb": "call statistics()",
    "statistics_interval_ms": "call statistics()",
    "on_delivery": "use the future of send()",
    "logger": "the SDK logs with Python's logging",
    "enable_ssl_certificate_verification": "certificates are always verified",
    "retries": "records are retried for delivery_timeout_ms",
    "message_send_max_retries": "records are retried for delivery_timeout_ms",
}
_RESETS = {"smallest": "earliest", "beginning": "earliest", "largest": "latest", "end": "latest",
           "error": "none"}  # fmt: skip
_PARTITIONERS = {"murmur2_random": "murmur2", "murmur2": "murmur2"}
_TRUE = {"true": True, "1": True, "false": False, "0": False}


def keywords_of(owner: str, kind: type[Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of the client whose options dataclass is `kind`. Raises OptionError, UsageError."""
    fields = {f.name: str(f.type) for f in dataclasses.fields(kind) if "rule" in f.metadata}
    found: dict[str, Any] = {}
    for given, value in config.items():
        spelled = given.replace(".", "_")
        name = _RENAMED.get(spelled, spelled)
        if spelled == "queue_buffering_max_kbytes":
            name, value = "buffer_memory", _number(given, value) * 1024
        elif spelled in _FILES:
            name, value = _FILES[spelled], _text_of(given, value)
        if name in SECURITY_OPTIONS:
            found[name] = value.upper() if name == "security_protocol" else value
        elif name in fields:
            found[name] = _typed(given, name, fields[name], value)
        elif spelled in _REMEDIES:
            raise OptionError(f"{owner} has no option {given!r}: {_REMEDIES[spelled]}")
        else:
            raise OptionError(unknown_option(owner, given, [*fields, *SECURITY_OPTIONS]))
    return found


def _typed(given: str, name: str, kind: str, value: Any) -> Any:
    """The value as the option wants it: configurations of text are common."""
    if name == "auto_offset_reset" and isinstance(value, str):
        return _RESETS.get(value, value)
    if name == "partitioner" and isinstance(value, str):
        return _PARTITIONERS.get(value, value)
    if name == "partition_assignment_strategy" and isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    if not isinstance(value, str) or kind.startswith(("str", "list", "tuple")) or name == "acks":
        return value
    if kind.startswith("bool"):
        if value.lower() not in _TRUE:
            raise UsageError(f"{given} is {value!r}: give true or false")
        return _TRUE[value.lower()]
    if kind.startswith(("int", "float")):
        return _number(given, value, int if kind.startswith("int") else float)
    return value


def _number(given: str, value: Any, kind: Callable[[Any], Any] = int) -> Any:
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise UsageError(f"{given} is {value!r}: give a number") from None


def _text_of(given: str, path: Any) -> str:
    try:
        return Path(path).read_text()
    except (OSError, TypeError, ValueError) as error:
        raise UsageError(f"{given} is {str(path)!r}, which cannot be read: {error}") from None

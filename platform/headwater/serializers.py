"""Serializers of the SDK, for `Topic`: bytes, text, JSON, models, and schemas of a registry.

    from headwater.serializers import ModelSerializer, StringSerializer

    orders = Topic("orders", key=StringSerializer(), value=ModelSerializer(Order))

Each is loaded on first use, with the library that it needs; `serializers.pyi` declares their types.
"""

from __future__ import annotations

import importlib
from typing import Any

from headwater.errors import UsageError
from headwater.extras import install_hint

_MODULES = {
    "headwater.client.serializers.values": (
        "BytesSerializer",
        "Context",
        "OptionalSerializer",
        "Serializer",
        "optional",
    ),
    "headwater.client.serializers.plain": ("JsonSerializer", "StringSerializer"),
    "headwater.client.serializers.models": ("ModelSerializer",),
    "headwater_tier.serializers.avro": ("AvroSerializer",),
    "headwater_tier.serializers.json_schema": ("JsonSchemaSerializer",),
    "headwater_tier.serializers.protobuf": ("ProtobufSerializer",),
    "headwater_tier.serializers.registry": ("SchemaRegistry",),
}
_EXTRAS = {
    "headwater.client.serializers.models": "models",
    "headwater_tier.serializers.avro": "schemas",
    "headwater_tier.serializers.json_schema": "schemas",
    "headwater_tier.serializers.protobuf": "schemas",
    "headwater_tier.serializers.registry": "schemas",
}
EXPORTS = {name: module for module, names in _MODULES.items() for name in names}
__all__ = list(EXPORTS)


def __getattr__(name: str) -> Any:
    """Load a serializer on first use (PEP 562). Raises UsageError without its library."""
    module = EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'headwater.serializers' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        hint = install_hint(_EXTRAS.get(module, "tier"))
        raise UsageError(f"{name} needs {error.name}: {hint}") from error


def __dir__() -> list[str]:
    """The names that can be imported."""
    return sorted(EXPORTS)

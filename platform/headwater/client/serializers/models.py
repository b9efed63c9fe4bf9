"""`ModelSerializer`: dataclasses and pydantic models as JSON objects. The one adapter of pydantic.

Needs the extra `models`.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter

from headwater.client.serializers.values import Context, some

T = TypeVar("T")


class ModelSerializer(Generic[T]):
    """Objects of a dataclass, a pydantic model, a TypedDict (before Python 3.12 that of
    typing_extensions) or a NamedTuple, as JSON; what is read is checked against their types."""

    def __init__(self, model: type[T]) -> None:
        """`model`: the class of the values."""
        self._adapter: TypeAdapter[T] = TypeAdapter(model)
        self._model = model
        # A TypedDict, whose objects are dicts, lets nobody ask for its instances.
        is_dict = isinstance(model, type) and issubclass(model, dict)
        self._kinds: tuple[type[Any], ...] = (dict,) if is_dict else (dict, model)

    def dumps(self, value: T, at: Context) -> bytes:
        """See Serializer."""
        if not isinstance(value, self._kinds):
            raise TypeError(f"give {self._model.__name__}, not {type(value).__name__}")
        return self._adapter.dump_json(value)

    def loads(self, data: bytes | None, at: Context) -> T:
        """See Serializer."""
        return self._adapter.validate_json(some(data))

    def to_plain(self, value: T) -> Any:
        """The value as dicts and lists, for serializers with a schema."""
        return self._adapter.dump_python(value)

    def to_json_value(self, value: T) -> Any:
        """The same with JSON's types only."""
        return self._adapter.dump_python(value, mode="json")

    def from_plain(self, plain: Any) -> T:
        """The value of dicts and lists. Raises ValueError."""
        return self._adapter.validate_python(plain)

    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema of the values."""
        return self._adapter.json_schema()

"""`JsonSchemaSerializer`: JSON objects, checked against a schema of a registry."""

from __future__ import annotations

import json
from typing import Any, Generic, TypeVar, overload

import jsonschema

from headwater.client.serializers.models import ModelSerializer
from headwater.client.serializers.values import Context
from headwater.errors import UsageError
from headwater_tier.serializers.framing import framed, unframed
from headwater_tier.serializers.registry import SchemaRegistry, Subject, topic_subject

T = TypeVar("T")
KIND = "JSON"


class JsonSchemaSerializer(Generic[T]):
    """Values of a JSON Schema: what JSON has, or objects of a model (a dataclass, a pydantic
    model), whose schema it derives where none is given."""

    may_block = True

    @overload
    def __init__(
        self: JsonSchemaSerializer[Any],
        registry: SchemaRegistry,
        schema: str,
        *,
        subject: Subject = topic_subject,
        register: bool = True,
    ) -> None: ...

    @overload
    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | None = None,
        *,
        model: type[T],
        subject: Subject = topic_subject,
        register: bool = True,
    ) -> None: ...

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | None = None,
        *,
        model: type[T] | None = None,
        subject: Subject = topic_subject,
        register: bool = True,
    ) -> None:
        """`register`: register the schema where the subject lacks it; without, it has to be
        there."""
        self._registry = registry
        self._model = None if model is None else ModelSerializer(model)
        if schema is None:
            if self._model is None:
                raise UsageError("JsonSchemaSerializer: give a schema, or a model")
            document = self._model.json_schema()
        else:
            document = json.loads(schema)
        self._text = json.dumps(document)
        kind = jsonschema.validators.validator_for(document)
        self._errors = kind(document).iter_errors
        self._subject = subject
        self._register = register

    def is_warm(self, at: Context) -> bool:
        """True once the schema's id is known: `dumps` asks nobody."""
        return self._registry.is_known(self._subject(at), KIND, self._text, register=self._register)

    def dumps(self, value: T, at: Context) -> bytes:
        """See Serializer."""
        plain = value if self._model is None else self._model.to_json_value(value)
        self._check(plain)
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        schema_id = self._registry.id_of(
            self._subject(at), KIND, self._text, register=self._register
        )
        return framed(schema_id, text.encode())

    def loads(self, data: bytes | None, at: Context) -> T:
        """See Serializer. The writer's schema is not asked for: the reader's is what counts."""
        plain: Any = json.loads(unframed(data)[1])
        self._check(plain)
        if self._model is None:
            found: T = plain
            return found
        return self._model.from_plain(plain)

    def _check(self, plain: Any) -> None:
        """Raises ValueError in one line."""
        error = next(iter(self._errors(plain)), None)
        if error is not None:
            raise ValueError(f"{error.json_path}: {error.message}")

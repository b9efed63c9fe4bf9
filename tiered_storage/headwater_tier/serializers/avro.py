"""`AvroSerializer`: records in Avro, with the schemas of a registry. An adapter of fastavro."""

from __future__ import annotations

import io
import json
from typing import Any, Generic, TypeVar, overload

import fastavro

from headwater.client.serializers.models import ModelSerializer
from headwater.client.serializers.values import Context
from headwater_tier.serializers.avro_bounds import AvroBounds
from headwater_tier.serializers.framing import framed, unframed
from headwater_tier.serializers.registry import SchemaRegistry, Subject, topic_subject

T = TypeVar("T")
KIND = "AVRO"


class AvroSerializer(Generic[T]):
    """Values of an Avro schema: dicts, or objects of a model (a dataclass, a pydantic model).

    What is read was written with any schema of the registry; it is resolved to this one.
    """

    may_block = True

    @overload
    def __init__(
        self: AvroSerializer[dict[str, Any]],
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
        schema: str,
        model: type[T],
        *,
        subject: Subject = topic_subject,
        register: bool = True,
    ) -> None: ...

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str,
        model: type[T] | None = None,
        *,
        subject: Subject = topic_subject,
        register: bool = True,
    ) -> None:
        """`schema`: JSON text. `register`: register it where the subject lacks it; without, it has
        to be there."""
        self._registry = registry
        self._text = json.dumps(json.loads(schema))
        self._parsed = fastavro.parse_schema(json.loads(schema))
        self._model = None if model is None else ModelSerializer(model)
        self._subject = subject
        self._register = register
        self._writers: dict[int, tuple[Any, AvroBounds]] = {}

    def is_warm(self, at: Context) -> bool:
        """True once the schema's id is known: `dumps` asks nobody."""
        return self._registry.is_known(self._subject(at), KIND, self._text, register=self._register)

    def dumps(self, value: T, at: Context) -> bytes:
        """See Serializer."""
        schema_id = self._registry.id_of(
            self._subject(at), KIND, self._text, register=self._register
        )
        out = io.BytesIO()
        plain = value if self._model is None else self._model.to_plain(value)
        fastavro.schemaless_writer(out, self._parsed, plain)
        return framed(schema_id, out.getvalue())

    def loads(self, data: bytes | None, at: Context) -> T:
        """See Serializer."""
        schema_id, payload = unframed(data)
        writer, bounds = self._writers.get(schema_id) or self._writer(schema_id)
        bounds.check(payload)
        plain: Any = fastavro.schemaless_reader(io.BytesIO(payload), writer, self._parsed)
        if self._model is None:
            found: T = plain
            return found
        return self._model.from_plain(plain)

    def _writer(self, schema_id: int) -> tuple[Any, AvroBounds]:
        schema = self._registry.by_id(schema_id)
        if schema.schema_type != KIND:
            raise ValueError(f"schema {schema_id} is of type {schema.schema_type}, not {KIND}")
        names: dict[str, Any] = {}
        for _, referred in schema.references:
            fastavro.parse_schema(json.loads(referred), named_schemas=names)
        parsed = fastavro.parse_schema(json.loads(schema.text), named_schemas=names)
        self._writers[schema_id] = parsed, AvroBounds(parsed, names)
        return self._writers[schema_id]

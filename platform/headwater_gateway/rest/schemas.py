"""Codecs of keys and values: plain ones, and those by a schema of the registry."""

from __future__ import annotations

import asyncio
import importlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Protocol

from headwater.clock import Clock
from headwater_gateway.app.login import Login
from headwater_gateway.registry.clients import SchemaRegistry
from headwater_gateway.rest.documents import unprocessable
from headwater_gateway.rest.formats import Format, decode_plain, encode_plain
from headwater_gateway.rest.kafka_errors import INVALID_SCHEMA, JSON_CONVERSION, SERIALIZATION
from headwater_gateway.rest.registry_port import (
    registered,
    schema_by_id,
    schema_of_version,
)
from headwater_gateway.rest.serdes.port import Serde, SerdeError
from headwater_tier.serializers.framing import framed, unframed
from headwater_tier.typed.decoding import RegisteredSchema

SERDES_MAX = 1_000
SEEN_S = 60.0
"""For so long a user may go on with a schema that the registry let it see."""
_PACKAGE = "headwater_gateway.rest.serdes"
_SERDES = {
    "AVRO": ("avro_json", "AvroSerde"),
    "JSON": ("json_schema", "JsonSchemaSerde"),
    "PROTOBUF": ("protobuf_json", "ProtobufSerde"),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """How a request says that a key or a value is to be written."""

    form: Format
    topic: str
    is_key: bool
    schema_id: int | None = None
    schema: str | None = None
    subject: str | None = None
    version: int | None = None

    @property
    def names_a_schema(self) -> bool:
        """True where there is one to be used."""
        given = (self.schema_id, self.schema, self.subject, self.version)
        return any(part is not None for part in given)

    @property
    def where(self) -> str:
        """For errors."""
        return "key" if self.is_key else "value"

    @property
    def subject_name(self) -> str:
        """The subject; by default the topic's (TopicNameStrategy)."""
        return self.subject or f"{self.topic}-{self.where}"


class Codec(Protocol):
    """Writes keys, or values."""

    @property
    def schema_id(self) -> int | None:
        """Of the schema; None without one."""
        ...

    async def encode(self, value: Any, where: str) -> bytes | None:
        """The bytes of a value. Raises GatewayError (422)."""
        ...


class PlainCodec:
    """Without a schema."""

    schema_id: int | None = None

    def __init__(self, form: Format) -> None:
        self._form = form

    async def encode(self, value: Any, where: str) -> bytes | None:
        """See the port."""
        return encode_plain(self._form, value, where)


class SchemaCodec:
    """By a schema: a zero, the schema's id, the payload (Confluent's wire format)."""

    def __init__(self, schema: RegisteredSchema, serde: Serde) -> None:
        self.schema_id: int | None = schema.schema_id
        self._id = schema.schema_id
        self._serde = serde

    async def encode(self, value: Any, where: str) -> bytes | None:
        """See the port."""
        if value is None:
            return None
        try:
            return framed(self._id, self._serde.encode(value))
        except SerdeError as error:
            raise unprocessable(
                f"Conversion of JSON to Object failed: {where}: {error}", JSON_CONVERSION
            ) from error


class Codecs:
    """All codecs of a gateway. Serdes are kept; whether a user may see a schema is asked of the
    registry once in a while."""

    def __init__(self, registry: SchemaRegistry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._seen: OrderedDict[tuple[Login, int], tuple[float, RegisteredSchema]] = OrderedDict()
        self._serdes: OrderedDict[RegisteredSchema, Serde] = OrderedDict()

    async def codec(self, login: Login, asked: Asked) -> Codec:
        """The codec for keys or values of a request. Raises GatewayError."""
        if not asked.form.has_schema:
            return PlainCodec(asked.form)
        schema = await self._schema(login, asked)
        if schema.schema_type != asked.form.schema_type:
            raise unprocessable(
                f"schema {schema.schema_id} is {schema.schema_type}, but the {asked.where} is sent "
                f"as {asked.form.schema_type}",
                SERIALIZATION,
            )
        return SchemaCodec(schema, await self._serde(schema))

    async def _schema(self, login: Login, asked: Asked) -> RegisteredSchema:
        if asked.schema_id is not None:
            return await self._by_id(login, asked.schema_id)
        if asked.schema is not None:
            kind = asked.form.schema_type
            return await registered(self._registry, login, asked.subject_name, kind, asked.schema)
        return await schema_of_version(self._registry, login, asked.subject_name, asked.version)

    async def codec_of_named(self, login: Login, asked: Asked) -> tuple[Codec, str]:
        """By the schema that the request names, in whatever language; and its language."""
        schema = await self._schema(login, asked)
        kind = Format.JSONSCHEMA.name if schema.schema_type == "JSON" else schema.schema_type
        return SchemaCodec(schema, await self._serde(schema)), kind

    async def decode(self, login: Login, form: Format, blob: bytes | None, where: str) -> Any:
        """A key or value for a client. Raises GatewayError (422) that says where it stands."""
        if not form.has_schema or blob is None:
            return decode_plain(form, blob, where)
        try:
            schema_id, payload = unframed(blob)
        except ValueError as error:
            raise unprocessable(f"{where}: {error}: read it as binary", JSON_CONVERSION) from error
        schema = await self._by_id(login, schema_id)
        try:
            return (await self._serde(schema)).decode(payload)
        except SerdeError as error:
            raise unprocessable(f"{where}: schema {schema_id}: {error}", JSON_CONVERSION) from error

    async def _by_id(self, login: Login, schema_id: int) -> RegisteredSchema:
        key, now = (login, schema_id), self._clock.monotonic()
        until_s, schema = self._seen.get(key, (now, None))
        if schema is None or now >= until_s:
            schema = await schema_by_id(self._registry, login, schema_id)
            self._seen[key] = now + SEEN_S, schema
            if len(self._seen) > SERDES_MAX:
                self._seen.popitem(last=False)
        return schema

    async def _serde(self, schema: RegisteredSchema) -> Serde:
        found = self._serdes.get(schema)
        if found is not None:
            self._serdes.move_to_end(schema)
            return found
        try:
            serde = await asyncio.to_thread(new_serde, schema)
        except SerdeError as error:
            raise unprocessable(f"Invalid schema: {error}", INVALID_SCHEMA) from error
        self._serdes[schema] = serde
        if len(self._serdes) > SERDES_MAX:
            self._serdes.popitem(last=False)
        return serde


def new_serde(schema: RegisteredSchema) -> Serde:
    """The serde of a schema; its language is loaded when it is first used. Raises SerdeError."""
    if schema.schema_type not in _SERDES:
        raise SerdeError(f"schemas of type {schema.schema_type} are not known here")
    module, name = _SERDES[schema.schema_type]
    make = getattr(importlib.import_module(f"{_PACKAGE}.{module}"), name)
    serde: Serde = make(schema)
    return serde

"""`ProtobufSerializer`: messages of a generated class, with the schemas of a registry."""

from __future__ import annotations

import base64
from typing import Any, Generic, TypeVar

from google.protobuf import descriptor_pb2

from headwater.client.serializers.values import Context
from headwater_tier.serializers.framing import encoded_indexes, framed, unframed
from headwater_tier.serializers.registry import (
    Reference,
    SchemaRegistry,
    Subject,
    topic_subject,
)
from headwater_tier.typed.formats.confluent import message_indexes

T = TypeVar("T")
KIND = "PROTOBUF"
BUILT_IN = ("google/protobuf/", "confluent/")
"""Files that every reader has: they are not registered."""


class ProtobufSerializer(Generic[T]):
    """Messages of one class that protoc generated. A file that it imports is registered as a
    subject of the file's name."""

    may_block = True

    def __init__(
        self,
        registry: SchemaRegistry,
        message: type[T],
        *,
        subject: Subject = topic_subject,
        register: bool = True,
    ) -> None:
        """`register`: register the schema where the subject lacks it; without, it has to be
        there."""
        self._registry = registry
        self._message: Any = message
        self._subject = subject
        self._register = register
        generated: Any = message
        descriptor = generated.DESCRIPTOR
        self._name = descriptor.full_name
        self._file = descriptor.file
        self._text = _text(self._file)
        self._indexes = encoded_indexes(_path(descriptor))
        self._references: tuple[Reference, ...] | None = None

    def is_warm(self, at: Context) -> bool:
        """True once the schema's id is known: `dumps` asks nobody."""
        return self._registry.is_known(self._subject(at), KIND, self._text, register=self._register)

    def dumps(self, value: T, at: Context) -> bytes:
        """See Serializer."""
        if type(value) is not self._message:
            raise TypeError(f"give a {self._name}, not {type(value).__name__}")
        if self._references is None:
            self._references = self._referred(self._file)
        schema_id = self._registry.id_of(
            self._subject(at), KIND, self._text, self._references, register=self._register
        )
        written: Any = value
        return framed(schema_id, self._indexes + written.SerializeToString())

    def loads(self, data: bytes | None, at: Context) -> T:
        """See Serializer. Protobuf's messages need no writer's schema."""
        _, payload = unframed(data)
        _, begin = message_indexes(payload, 0)
        found: T = self._message.FromString(payload[begin:])
        return found

    def _referred(self, file: Any) -> tuple[Reference, ...]:
        """The imports of a file, registered, as references."""
        found = []
        for imported in file.dependencies:
            if imported.name.startswith(BUILT_IN):
                continue
            version = self._registry.version_of(
                imported.name,
                KIND,
                _text(imported),
                self._referred(imported),
                register=self._register,
            )
            found.append(Reference(imported.name, imported.name, version))
        return tuple(found)


def _text(file: Any) -> str:
    """A file as Confluent's client for Python registers it: its descriptor in base64."""
    row = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(row)
    return base64.b64encode(row.SerializeToString()).decode()


def _path(descriptor: Any) -> tuple[int, ...]:
    """The indexes of a message: of the outermost one in its file, then of each nested one."""
    above = descriptor.containing_type
    if above is None:
        names = list(descriptor.file.message_types_by_name)
        return (names.index(descriptor.name),)
    names = [nested.name for nested in above.nested_types]
    return (*_path(above), names.index(descriptor.name))

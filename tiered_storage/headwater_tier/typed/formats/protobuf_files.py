"""The files of a Protobuf schema: a .proto text, or a FileDescriptorProto in base64, as Confluent's
client for Python registers it.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.message import DecodeError

from headwater_tier.typed.formats.misfit import UnsupportedSchemaError
from headwater_tier.typed.formats.protobuf_compiler import BUILT_IN, SCHEMA_FILE, compiled_proto

File = Any
"""A FileDescriptorProto: protobuf's classes have no types."""
_WELL_KNOWN = {
    module.DESCRIPTOR.name: module.DESCRIPTOR
    for module in (
        any_pb2, api_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2,
        source_context_pb2, struct_pb2, timestamp_pb2, type_pb2, wrappers_pb2,
    )
}  # fmt: skip


def descriptor_files(text: str, references: tuple[tuple[str, str], ...]) -> list[File]:
    """All files, those imported first, the schema's own last. Raises UnsupportedSchemaError."""
    main = serialized_file(text, SCHEMA_FILE)
    if main is None:
        for name, referred in references:
            if serialized_file(referred, name) is not None:
                raise UnsupportedSchemaError(f"reference {name}: register it as .proto text")
        return _compiled(text, references)
    files: dict[str, File] = {}
    _add(main, dict(references), files)
    return list(files.values())


def serialized_file(text: str, name: str) -> File | None:
    """The file of a base64 text, under this name; None if it is a .proto text."""
    try:
        data = base64.b64decode(text, validate=True)
        file = descriptor_pb2.FileDescriptorProto.FromString(data)
    except (binascii.Error, ValueError, DecodeError):
        return None
    file.name = name
    return file


def _add(file: File, given: dict[str, str], files: dict[str, File]) -> None:
    """Add what the file imports, then the file."""
    for name in file.dependency:
        if name in files:
            continue
        if name in _WELL_KNOWN:
            found = descriptor_pb2.FileDescriptorProto()
            _WELL_KNOWN[name].CopyToProto(found)
            _add(found, given, files)
            continue
        text = given.pop(name, BUILT_IN.get(name))
        if text is None:
            raise UnsupportedSchemaError(f"no Protobuf schema: {name} is imported, not referred to")
        imported = serialized_file(text, name)
        if imported is not None:
            _add(imported, given, files)
            continue
        *before, imported = _compiled(text, tuple(given.items()))
        imported.name = name
        for one in before:
            files.setdefault(one.name, one)
        files[name] = imported
    files[file.name] = file


def _compiled(text: str, references: tuple[tuple[str, str], ...]) -> list[File]:
    found = descriptor_pb2.FileDescriptorSet.FromString(compiled_proto(text, references))
    return list(found.file)

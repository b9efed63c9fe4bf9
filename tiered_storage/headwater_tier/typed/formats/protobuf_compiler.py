"""The compiler of .proto texts: protoc as grpcio-tools has it, in a process of its own, for protoc
writes its errors to standard error.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath

from headwater.extras import install_hint
from headwater_tier.typed.formats.misfit import UnsupportedSchemaError

SCHEMA_FILE = "headwater_schema.proto"
"""The name of the compiled text; those that it refers to have their own."""
COMPILE_S_MAX = 60
_META = "confluent/meta.proto"
_DECIMAL = "confluent/type/decimal.proto"
_EXTENDED = ("File", "Message", "Field", "Enum", "EnumValue")
BUILT_IN = {
    _META: 'syntax = "proto3";\npackage confluent;\nimport "google/protobuf/descriptor.proto";\n'
    "message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }\n"
    + "".join(
        f"extend google.protobuf.{name}Options {{ Meta {field}_meta = 1088; }}\n"
        for name, field in zip(
            _EXTENDED, ("file", "message", "field", "enum", "enum_value"), strict=True
        )
    ),
    _DECIMAL: 'syntax = "proto3";\npackage confluent.type;\n'
    "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }\n",
}
"""What Confluent's schemas import without a reference."""


@lru_cache(maxsize=1000)
def compiled_proto(text: str, references: tuple[tuple[str, str], ...] = ()) -> bytes:
    """A serialized FileDescriptorSet, imports included; the text's own file is SCHEMA_FILE.

    Raises UnsupportedSchemaError with protoc's first complaint.
    """
    if importlib.util.find_spec("grpc_tools") is None:
        raise UnsupportedSchemaError(f"Protobuf needs grpcio-tools: {install_hint('schemas')}")
    with tempfile.TemporaryDirectory(prefix="headwater-proto-") as folder:
        root = Path(folder)
        _write(root, {**BUILT_IN, **dict(references), SCHEMA_FILE: text})
        out = root / "descriptors"
        command = [sys.executable, "-c", _PROTOC, f"-I{root}", f"--descriptor_set_out={out}",
                   "--include_imports", SCHEMA_FILE]  # fmt: skip
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=COMPILE_S_MAX, check=False
            )
        except subprocess.TimeoutExpired:
            raise UnsupportedSchemaError(
                f"no .proto schema: it does not compile within {COMPILE_S_MAX} s"
            ) from None
        if done.returncode:
            shown = done.stderr.replace(f"{root}/", "")
            lines = [line for line in shown.splitlines() if ".proto:" in line]
            complaint = lines[0] if lines else shown.strip()[-300:] or "protoc failed"
            raise UnsupportedSchemaError(f"no .proto schema: {complaint[:300]}")
        return out.read_bytes()


_PROTOC = """
import sys
from importlib.resources import files
from grpc_tools import protoc
sys.exit(protoc.main(["protoc", *sys.argv[1:], f"-I{files('grpc_tools') / '_proto'}"]))
"""


def _write(root: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts or "\0" in name or not parts.parts:
            raise UnsupportedSchemaError(f"a reference is named {name[:80]!r}: use a/b.proto")
        path = root / parts
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

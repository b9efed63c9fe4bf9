"""The wire schema: one frozen dataclass per message for all its versions, and its compiled codecs.

Each field has a kind, a version span, nullability and maybe a tag (Kafka protocol guide; KIP-482
for tagged fields and compact encodings). `encoder(cls, version)` and `decoder(cls, version)`
compile a codec once per class and version. Stored records and control messages have schemas of the
same kind. Arrays are tuples. `records` and `bytes` decode to `memoryview` slices of the input,
without a copy.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar, TypeVar, cast, dataclass_transform

from headwater.wire import primitives as p

VERSION_MAX = 32767
BLOB_BYTES = 32 * 1024
"""Smaller blobs are cheaper to copy than to send by themselves."""
S = TypeVar("S", bound="Struct")


class SchemaError(ValueError):
    """A value that the schema cannot encode, or bytes that do not parse."""


@dataclass(frozen=True, slots=True)
class Span:
    """Versions `low` to `high`, both inclusive; empty if low > high."""

    low: int
    high: int

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    @staticmethod
    @cache
    def parse(text: str | None) -> Span:
        """`"3+"`, `"3-5"`, `"3"`, or None for never."""
        if text is None or text == "none":
            return Span(1, 0)
        if text.endswith("+"):
            return Span(int(text[:-1]), VERSION_MAX)
        low, _, high = text.partition("-")
        return Span(int(low), int(high or low))


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """The schema of one field, kept in the metadata of the dataclass field."""

    kind: str | type[Struct]
    is_array: bool
    versions: Span
    nullable: Span
    tag: int | None
    tagged: Span
    ignorable: bool
    flexible: bool | None
    default: Any


class Struct:
    """Base of nested structures. Subclasses are frozen, slotted, keyword-only dataclasses.

    The methods that `dataclass` would compile for each class are defined here once, and `__init__`
    is compiled when the first value is created. A process imports hundreds of these classes and
    uses some dozens; compiling their methods took a third of a broker's start.
    """

    __slots__: tuple[str, ...] = ()

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        cls.__init__ = _compile_init(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __repr__(self) -> str:
        rows = ", ".join(f"{name}={getattr(self, name)!r}" for name in _names(type(self)))
        return f"{type(self).__qualname__}({rows})"

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return _values(self) == _values(other)

    def __hash__(self) -> int:
        return hash(_values(self))

    def __setattr__(self, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), _values(self))


@dataclass_transform(frozen_default=True, kw_only_default=True)
def wire_schema(cls: type[S]) -> type[S]:
    """Make a subclass of `Struct` a frozen, slotted, keyword-only dataclass of its fields."""
    make = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)
    made = make(cls)
    made.__init__ = Struct.__init__  # type: ignore[method-assign]
    # `Struct` makes it frozen; marked so, that frozen dataclasses may extend it.
    cast(Any, made).__dataclass_params__.frozen = True
    return made


def _compile_init(cls: type[Struct]) -> Callable[..., None]:
    """Compile `__init__` as `dataclass` does, but with direct assignments to the slots."""
    names, scope = [f.name for f in dataclasses.fields(cast(Any, cls))], {}
    for field in dataclasses.fields(cast(Any, cls)):
        scope[f"default_{field.name}"] = field.default
        scope[f"set_{field.name}"] = getattr(cls, field.name).__set__
    heads = "".join(f", {name}=default_{name}" for name in names)
    rows = [f"    set_{name}(self, {name})" for name in names]
    source = "\n".join((f"def __init__(self{', *' if names else ''}{heads}):", *rows, "    return"))
    exec(source, scope)
    return cast(Callable[..., None], scope["__init__"])


_NAMES: dict[Any, tuple[str, ...]] = {}


def _names(cls: Any) -> tuple[str, ...]:
    found = _NAMES.get(cls)
    if found is None:
        found = _NAMES[cls] = tuple(f.name for f in dataclasses.fields(cls))
    return found


def _values(value: Struct) -> tuple[Any, ...]:
    return tuple([getattr(value, name) for name in _names(type(value))])


def _restore(cls: type[Struct], values: tuple[Any, ...]) -> Struct:
    return cls(**dict(zip(_names(cls), values, strict=True)))


class Message(Struct):
    """Base of top-level messages.

    `api_key` is -1 for messages that are not of a Kafka API (headers, control messages, stored
    records). `flexible` is the first flexible version (KIP-482); VERSION_MAX if there is none.
    """

    __slots__ = ()
    api_key: ClassVar[int] = -1
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0


def wire(
    kind: str | type[Struct],
    versions: str = "0+",
    *,
    nullable: str | None = None,
    default: Any = dataclasses.MISSING,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
    flexible: bool | None = None,
    array: bool = False,
) -> Any:
    """Declare a field: its kind (name of a primitive, or a Struct class), versions and options."""
    if default is dataclasses.MISSING:
        default = () if array else (p.DEFAULTS[kind] if isinstance(kind, str) else kind())
    spec = FieldSpec(
        kind=kind,
        is_array=array,
        versions=Span.parse(versions),
        nullable=Span.parse(nullable),
        tag=tag,
        tagged=Span.parse(tagged),
        ignorable=ignorable,
        flexible=flexible,
        default=default,
    )
    return dataclasses.field(default=default, metadata={"wire": spec})


Write = Callable[[bytearray, Any], None]
Read = Callable[[memoryview, int], tuple[Any, int]]
WriterRun = tuple[Callable[[bytearray, Any], bool] | None, list[tuple[str, Write]]]
"""Fields: how several are packed at once (None, or it returns False: they are not), and each."""
_NOT_WRITTEN = (TypeError, AttributeError, struct.error, OverflowError)
M = TypeVar("M", bound="Message")

_STRUCT_WRITERS: dict[tuple[type[Struct], int, bool], Write] = {}
_STRUCT_READERS: dict[tuple[type[Struct], int, bool], Read] = {}
_ENCODERS: dict[tuple[type[Struct], int], Callable[[Any], bytes]] = {}
_DECODERS: dict[tuple[type[Struct], int], Callable[..., tuple[Any, int]]] = {}


def _specs(cls: type[Struct]) -> list[tuple[str, FieldSpec]]:
    fields = dataclasses.fields(cast(Any, cls))
    return [(f.name, f.metadata["wire"]) for f in fields if "wire" in f.metadata]


def _value_writer(name: str, spec: FieldSpec, version: int, flexible: bool) -> Write:
    flexible = flexible if spec.flexible is None else spec.flexible
    nullable = version in spec.nullable
    if spec.is_array:
        item = _item_writer(spec, version, flexible)
        return p.array_writer(item, compact=flexible, nullable=nullable)
    if isinstance(spec.kind, str):
        return p.writer(spec.kind, compact=flexible, nullable=nullable)
    inner = _struct_writer(spec.kind, version, flexible)
    return p.nullable_struct_writer(inner) if nullable else inner


def _item_writer(spec: FieldSpec, version: int, flexible: bool) -> Write:
    if isinstance(spec.kind, str):
        return p.writer(spec.kind, compact=flexible, nullable=False)
    return _struct_writer(spec.kind, version, flexible)


def _value_reader(spec: FieldSpec, version: int, flexible: bool) -> Read:
    flexible = flexible if spec.flexible is None else spec.flexible
    nullable = version in spec.nullable
    if spec.is_array:
        if isinstance(spec.kind, str):
            item = p.reader(spec.kind, compact=flexible, nullable=False)
        else:
            item = _struct_reader(spec.kind, version, flexible)
        return p.array_reader(item, compact=flexible, nullable=nullable)
    if isinstance(spec.kind, str):
        return p.reader(spec.kind, compact=flexible, nullable=nullable)
    inner = _struct_reader(spec.kind, version, flexible)
    return p.nullable_struct_reader(inner) if nullable else inner


def _is_tagged(spec: FieldSpec, version: int, flexible: bool) -> bool:
    return flexible and spec.tag is not None and version in spec.tagged


def _struct_writer(cls: type[Struct], version: int, flexible: bool) -> Write:
    key = (cls, version, flexible)
    if key not in _STRUCT_WRITERS:
        _STRUCT_WRITERS[key] = _compile_writer(cls, version, flexible)
    return _STRUCT_WRITERS[key]


def _compile_writer(cls: type[Struct], version: int, flexible: bool) -> Write:
    plain: list[tuple[str, Write]] = []
    tagged: list[tuple[int, str, Any, Write]] = []
    absent: list[tuple[str, Any]] = []
    for name, spec in _specs(cls):
        if version not in spec.versions:
            if not spec.ignorable:
                absent.append((name, spec.default))
        elif _is_tagged(spec, version, flexible):
            write_tag = _value_writer(name, spec, version, flexible)
            tagged.append((cast(int, spec.tag), name, spec.default, write_tag))
        else:
            plain.append((name, _value_writer(name, spec, version, flexible)))
    struct_name = cls.__name__
    runs = _writer_runs(cls, plain)
    write_tags = _tags_writer(tagged) if flexible else None

    def write(out: bytearray, value: Any) -> None:
        if absent:
            _check_absent(value, absent, version)
        for write_run, fields in runs:
            if write_run is not None and write_run(out, value):
                continue
            for name, write_one in fields:
                try:
                    write_one(out, getattr(value, name))
                except _NOT_WRITTEN as e:
                    raise SchemaError(f"{struct_name}.{name} v{version}: {e}") from e
        if write_tags is not None:
            write_tags(out, value)

    return write


def _check_absent(value: Any, absent: list[tuple[str, Any]], version: int) -> None:
    for name, default in absent:
        if getattr(value, name) != default:
            raise SchemaError(f"{type(value).__name__}.{name} cannot be sent in version {version}")


def _tags_writer(tagged: list[tuple[int, str, Any, Write]]) -> Write:
    tagged.sort(key=lambda row: row[0])

    def write(out: bytearray, value: Any) -> None:
        rows = [row for row in tagged if getattr(value, row[1]) != row[2]]
        p.write_tagged(out, [(tag, w, getattr(value, name)) for tag, name, _, w in rows])

    def write_none(out: bytearray, value: Any) -> None:
        out.append(0)

    return write if tagged else write_none


def _fixed_runs(cls: type[Struct], names: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Fields in their order: (`struct` code, names) of fixed ones that follow each other, which are
    packed at once; ("", one name) of any other."""
    specs = dict(_specs(cls))
    runs: list[tuple[str, list[str]]] = []
    for name in names:
        kind = specs[name].kind
        is_simple = isinstance(kind, str) and not specs[name].is_array
        code = p.fixed_code(kind) if is_simple and isinstance(kind, str) else None
        if code is None:
            runs.append(("", [name]))
        elif runs and runs[-1][0]:
            runs[-1] = (runs[-1][0] + code, [*runs[-1][1], name])
        else:
            runs.append((code, [name]))
    return runs


def _writer_runs(cls: type[Struct], plain: list[tuple[str, Write]]) -> list[WriterRun]:
    writes = dict(plain)
    return [
        (
            _run_writer(struct.Struct(">" + code), names) if len(names) > 1 else None,
            [(name, writes[name]) for name in names],
        )
        for code, names in _fixed_runs(cls, writes)
    ]


def _run_writer(fixed: struct.Struct, names: list[str]) -> Callable[[bytearray, Any], bool]:
    pack, get = fixed.pack, attrgetter(*names)

    def write_run(out: bytearray, value: Any) -> bool:
        try:
            out += pack(*get(value))
        except _NOT_WRITTEN:
            return False  # the fields one by one tell which of them it is
        return True

    return write_run


def _struct_reader(cls: type[Struct], version: int, flexible: bool) -> Read:
    key = (cls, version, flexible)
    if key not in _STRUCT_READERS:
        _STRUCT_READERS[key] = _compile_reader(cls, version, flexible)
    return _STRUCT_READERS[key]


def _compile_reader(cls: type[Struct], version: int, flexible: bool) -> Read:
    plain: list[tuple[str, Read]] = []
    tagged: dict[int, tuple[str, Read]] = {}
    for name, spec in _specs(cls):
        if version not in spec.versions:
            continue
        read_one = _value_reader(spec, version, flexible)
        if _is_tagged(spec, version, flexible):
            tagged[cast(int, spec.tag)] = (name, read_one)
        else:
            plain.append((name, read_one))
    make = cast(Callable[..., Any], cls)
    reads = dict(plain)
    runs: list[tuple[tuple[str, ...], struct.Struct | None, Read]] = [
        (tuple(names), struct.Struct(">" + code) if len(names) > 1 else None, reads[names[0]])
        for code, names in _fixed_runs(cls, reads)
    ]

    def read(view: memoryview, at: int) -> tuple[Any, int]:
        values: dict[str, Any] = {}
        for names, fixed, read_one in runs:
            if fixed is None:
                values[names[0]], at = read_one(view, at)
            else:
                values.update(zip(names, fixed.unpack_from(view, at), strict=True))
                at += fixed.size
        if flexible:
            if view[at]:
                at = p.read_tagged(view, at, tagged, values)
            else:
                at += 1
        return make(**values), at

    return read


def _check_version(cls: type[Message], version: int) -> None:
    low, high = cls.versions
    if not low <= version <= high:
        raise SchemaError(f"{cls.__name__} has versions {low} to {high}, not {version}")


def encoder(cls: type[Message], version: int) -> Callable[[Any], bytes]:
    """The compiled encoder of `cls` in `version`. It raises SchemaError on bad values."""
    key = (cls, version)
    if key not in _ENCODERS:
        _ENCODERS[key] = _compile_encoder(cls, version)
    return _ENCODERS[key]


def _compile_encoder(cls: type[Message], version: int) -> Callable[[Any], bytes]:
    _check_version(cls, version)
    write = _struct_writer(cls, version, version >= cls.flexible)

    def encode(message: Any) -> bytes:
        out = bytearray()
        write(out, message)
        return bytes(out)

    return encode


def decoder(cls: type[M], version: int) -> Callable[..., tuple[M, int]]:
    """The compiled decoder of `cls` in `version`: (view, position=0) -> (message, next position).
    It raises SchemaError."""
    key = (cls, version)
    if key not in _DECODERS:
        _DECODERS[key] = _compile_decoder(cls, version)
    return _DECODERS[key]


def _compile_decoder(cls: type[Message], version: int) -> Callable[..., tuple[Any, int]]:
    _check_version(cls, version)
    read = _struct_reader(cls, version, version >= cls.flexible)
    name = cls.__name__

    def decode(view: memoryview | bytes, at: int = 0) -> tuple[Any, int]:
        try:
            return read(memoryview(view), at)
        except (struct.error, IndexError, ValueError) as e:
            raise SchemaError(f"malformed {name} v{version} at byte {at}: {e}") from e

    return decode


class _Spliced(bytearray):
    """What a writer appends, without the large blobs."""

    def __init__(self, head: bytes) -> None:
        super().__init__(head)
        self.blobs: list[tuple[int, bytes | bytearray | memoryview]] = []
        """(where it belongs, blob)."""

    def __iadd__(self, data: Any) -> Any:  # type: ignore[misc]  # `+` is never used
        if len(data) < BLOB_BYTES:
            return super().__iadd__(data)
        self.blobs.append((len(self), data))
        return self


def encode_parts(
    message: Message, version: int, head: bytes
) -> list[bytes | bytearray | memoryview]:
    """`head` and the encoded message, in parts: blobs of BLOB_BYTES and more are not copied."""
    cls = type(message)
    _check_version(cls, version)
    out = _Spliced(head)
    _struct_writer(cls, version, version >= cls.flexible)(out, message)
    view = memoryview(out)
    parts: list[bytes | bytearray | memoryview] = []
    at = 0
    for place, blob in out.blobs:
        parts += (view[at:place], blob)
        at = place
    parts.append(view[at:])
    return parts


def encode(message: Message, version: int) -> bytes:
    """Encode one message. In a loop use `encoder`."""
    return encoder(type(message), version)(message)


def decode(cls: type[M], version: int, view: memoryview | bytes) -> M:
    """Decode one message. Raises SchemaError, also if bytes are left over."""
    message, end = decoder(cls, version)(view, 0)
    if end != len(view):
        raise SchemaError(f"{cls.__name__} v{version}: {len(view) - end} bytes left over")
    return message

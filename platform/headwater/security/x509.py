"""Reads an X.509 certificate as far as TLS needs it: names, validity, alternative names.

The subject is rendered as Java's `X500Principal.getName()` renders it (RFC 2253), byte for byte:
the names of principals in ACLs depend on it. OpenSSL has checked the certificates that come here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from headwater.errors import HeadwaterError

_SEQUENCE, _CONTEXT_0, _CONTEXT_3 = 0x30, 0xA0, 0xA3
_OID, _UTC_TIME = 0x06, 0x17
_TEXT_TAGS = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E))
"""UTF8, Printable, T61, IA5, General, Universal, BMP: the strings that Java shows as text."""
_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attribute types that RFC 2253 names; others appear as numbers with a value in hex."""
_ESCAPED = ',=+<>#;"\\'
_BLANKS = " \r"
_SUBJECT_ALTERNATIVE_NAME = "2.5.29.17"
_CENTURY_PIVOT = 50
"""Two-digit years from here on belong to the 1900s (RFC 5280, 4.1.2.5.1)."""


class CertificateFormatError(HeadwaterError):
    """The bytes are not an X.509 certificate."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The fields of one certificate."""

    subject: str
    """The distinguished name, as in RFC 2253: `CN=a,O=b`."""
    issuer: str
    """The name of who signed it."""
    not_before: datetime
    not_after: datetime
    alternative_names: frozenset[bytes]
    """The subject alternative names, each as its DER bytes."""


def read_certificate(der: bytes) -> Certificate:
    """The fields of a certificate in DER. Raises CertificateFormatError."""
    try:
        return _certificate(der)
    except (IndexError, ValueError, StopIteration) as error:
        raise CertificateFormatError(f"not an X.509 certificate: {error}") from None


@dataclass(frozen=True, slots=True)
class _Element:
    """One element of DER: tag, content, and the whole with its header."""

    tag: int
    content: bytes
    whole: bytes

    def children(self) -> list[_Element]:
        return list(_elements(self.content))


def _elements(data: bytes) -> Iterator[_Element]:
    at = 0
    while at < len(data):
        tag, size, begin = data[at], data[at + 1], at + 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[begin : begin + count], "big")
            begin += count
        end = begin + size
        if end > len(data):
            raise ValueError("an element runs past the end")
        yield _Element(tag, data[begin:end], data[at:end])
        at = end


def _certificate(der: bytes) -> Certificate:
    outer = next(_elements(der))
    fields = next(_elements(outer.content)).children()
    if fields[0].tag == _CONTEXT_0:  # the version
        del fields[0]
    _serial, _signature, issuer, validity, subject = fields[:5]
    not_before, not_after = (_time(moment) for moment in validity.children())
    extensions = next((f for f in fields[5:] if f.tag == _CONTEXT_3), None)
    return Certificate(
        subject=_distinguished_name(subject),
        issuer=_distinguished_name(issuer),
        not_before=not_before,
        not_after=not_after,
        alternative_names=_alternative_names(extensions),
    )


def _time(moment: _Element) -> datetime:
    text = moment.content.decode("ascii").removesuffix("Z")
    if moment.tag == _UTC_TIME:
        text = ("19" if int(text[:2]) >= _CENTURY_PIVOT else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=UTC)


def _alternative_names(extensions: _Element | None) -> frozenset[bytes]:
    if extensions is not None:
        for extension in extensions.children()[0].children():
            oid, *_critical, value = extension.children()
            if _dotted(oid.content) == _SUBJECT_ALTERNATIVE_NAME:
                (names,) = value.children()
                return frozenset(name.whole for name in names.children())
    return frozenset()


def _distinguished_name(name: _Element) -> str:
    """The relative names, last one first."""
    return ",".join("+".join(map(_attribute, rdn.children())) for rdn in name.children()[::-1])


def _attribute(attribute: _Element) -> str:
    oid, value = attribute.children()
    number = _dotted(oid.content)
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _TEXT_TAGS:
        return f"{keyword or number}=#{value.whole.hex()}"
    return f"{keyword}={_escape(value.content.decode('utf-8', 'replace'))}"


def _escape(text: str) -> str:
    escaped = "".join(
        "\\00" if char == "\0" else "\\" + char if char in _ESCAPED else char for char in text
    )
    inner = escaped.strip(_BLANKS)
    if not inner:
        return "".join("\\" + blank for blank in escaped)
    lead = escaped.index(inner)
    before, after = escaped[:lead], escaped[lead + len(inner) :]
    return "".join(
        ["".join("\\" + blank for blank in before), inner, *("\\" + blank for blank in after)]
    )


def _dotted(oid: bytes) -> str:
    numbers, value = [], 0
    for byte in oid:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))

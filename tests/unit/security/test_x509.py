"""Certificates: the subject as Java renders it, validity, alternative names."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from headwater.security.x509 import CertificateFormatError, read_certificate
from tls_authority import Authority

AUTHORITY = Authority()


def subject_of(*attributes: x509.NameAttribute) -> str:
    return read_certificate(AUTHORITY.leaf(x509.Name(list(attributes))).der).subject


def common(text: str) -> x509.NameAttribute:
    return x509.NameAttribute(NameOID.COMMON_NAME, text)


def test_the_most_specific_name_comes_first() -> None:
    assert (
        subject_of(
            x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
            x509.NameAttribute(NameOID.STATE_OR_PROVINCE_NAME, "Berlin"),
            x509.NameAttribute(NameOID.LOCALITY_NAME, "Mitte"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Acme"),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "Data"),
            x509.NameAttribute(NameOID.USER_ID, "u1"),
            common("alice"),
        )
        == "CN=alice,UID=u1,OU=Data,O=Acme,L=Mitte,ST=Berlin,C=DE"
    )


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("a,O=b", r"CN=a\,O\=b"),
        ('x"+<>#;\\', r"CN=x\"\+\<\>\#\;\\"),
        (" two ", r"CN=\ two\ "),
        ("  ", r"CN=\ \ "),
        ("admin\0.evil", r"CN=admin\00.evil"),
        ("jürgen", "CN=jürgen"),
    ],
)
def test_special_characters_are_escaped_as_in_java(text: str, rendered: str) -> None:
    assert subject_of(common(text)) == rendered


def test_other_attributes_appear_by_number_with_their_bytes() -> None:
    email = x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b", _type=_ASN1Type.IA5String)
    assert subject_of(common("a"), email) == "1.2.840.113549.1.9.1=#1603614062,CN=a"


def test_a_relative_name_of_several_attributes_is_joined_by_plus() -> None:
    unit = x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "u")
    name = x509.Name([x509.RelativeDistinguishedName([unit, common("a")])])
    rendered = read_certificate(AUTHORITY.leaf(name).der).subject
    assert set(rendered.split("+")) == {"OU=u", "CN=a"}


def test_validity_before_and_after_2050() -> None:
    begin, end = datetime(2024, 2, 29, 12, 30, 5, tzinfo=UTC), datetime(2051, 1, 1, tzinfo=UTC)
    certificate = read_certificate(AUTHORITY.leaf(not_before=begin, not_after=end).der)
    assert (certificate.not_before, certificate.not_after) == (begin, end)


def test_alternative_names_are_compared_by_their_bytes() -> None:
    one, two, three = (
        read_certificate(AUTHORITY.leaf(hosts=hosts).der).alternative_names
        for hosts in (("a", "127.0.0.1"), ("127.0.0.1", "a"), ())
    )
    assert one == two
    assert len(one) == 2
    assert three == frozenset()


@pytest.mark.parametrize("junk", [b"", b"\x30", b"\x30\x82\xff\xff\x00", b"\x30\x02\x05\x00"])
def test_other_bytes_are_refused(junk: bytes) -> None:
    with pytest.raises(CertificateFormatError):
        read_certificate(junk)

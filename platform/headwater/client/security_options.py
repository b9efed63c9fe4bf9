"""The security options of `Producer`, `Consumer`, `Admin`: Kafka's names with underscores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from headwater.client.errors import OptionError
from headwater.ports.credentials import Credentials
from headwater.security.client_security import credentials_of


class SecurityOptions(TypedDict, total=False):
    """Keywords of the clients. docs/clients.md has the table; secrets may be references, as
    `env:NAME`, `file:PATH`, `databricks:SCOPE/KEY`."""

    security_protocol: str
    sasl_mechanism: str
    sasl_jaas_config: str
    sasl_username: str
    sasl_password: str
    sasl_kerberos_service_name: str
    sasl_oauthbearer_token_endpoint_url: str
    sasl_oauthbearer_client_credentials_client_id: str
    sasl_oauthbearer_client_credentials_client_secret: str
    sasl_oauthbearer_scope: str
    ssl_truststore_location: str
    ssl_truststore_type: str
    ssl_truststore_password: str
    ssl_truststore_certificates: str
    ssl_keystore_location: str
    ssl_keystore_type: str
    ssl_keystore_password: str
    ssl_keystore_key: str
    ssl_keystore_certificate_chain: str
    ssl_key_password: str
    ssl_endpoint_identification_algorithm: str
    ssl_enabled_protocols: str
    ssl_protocol: str
    ssl_cipher_suites: str


SECURITY_OPTIONS = tuple(SecurityOptions.__annotations__)


def security_keywords(properties: Mapping[str, str]) -> SecurityOptions:
    """A client's security properties, as keywords of `Producer`, `Consumer` and `Admin`."""
    found: SecurityOptions = {}
    for name, text in properties.items():
        keyword = name.replace(".", "_")
        if keyword in SECURITY_OPTIONS:
            found[keyword] = text  # type: ignore[literal-required]
    return found


def credentials_from(given: Mapping[str, Any]) -> Credentials:
    """The credentials of these keywords. Raises OptionError for a value that is no string,
    UsageError for other bad ones; neither shows the value of a secret."""
    properties = {}
    for name, value in given.items():
        if not isinstance(value, str):
            raise OptionError(f"{name} is of type {type(value).__name__}: give a string")
        properties[name.replace("_", ".")] = value
    return credentials_of(properties)

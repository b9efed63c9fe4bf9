"""Admission to the control plane: brokers only, by the certificate that they show (mTLS).

A certificate's distinguished name becomes a principal by `ssl.principal.mapping.rules`; it must
have ClusterAction on the cluster, as super users have. A forwarded admin request names its client's
principal, and is believed because only brokers get here, as with Kafka's Envelope.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from headwater.errors import HeadwaterError
from headwater.ports.authorizer import Authorizer, Operation, Principal, ResourceType
from headwater.security.acl import CLUSTER_NAME
from headwater.security.principal import NoMatchingRuleError, PrincipalMapper
from headwater.security.x509 import CertificateFormatError, read_certificate

CONTROL = "CONTROL"
CERTIFICATES_MAX = 1_000
"""Certificates whose principal is remembered; one more forgets them all."""


class NotABrokerError(HeadwaterError):
    """The caller is not known to be a broker of this cluster."""


@dataclass(frozen=True, slots=True)
class ControlPeer:
    """`headwater.ports.authorizer.Requester` of a control call."""

    principal: Principal
    host: str
    asks_quietly: bool = False


class ControlAdmission:
    """Admits the calls of brokers."""

    def __init__(self, mapper: PrincipalMapper, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self._mapper = mapper
        self._principals: dict[str, Principal] = {}

    def admit(self, certificate: str, host: str) -> None:
        """Raises NotABrokerError. `certificate`: the caller's, in PEM; empty when it shows none."""
        if not certificate:
            raise NotABrokerError("a client certificate is needed")
        principal = self._principals.get(certificate) or self._principal(certificate)
        requester = ControlPeer(principal, host)
        if not self._authorizer.authorize(
            requester, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        ):
            raise NotABrokerError(
                f"User:{principal.name} at {host} has no CLUSTER_ACTION on the cluster: add the "
                "principal of the brokers' certificates to super.users"
            )

    def _principal(self, certificate: str) -> Principal:
        try:
            shown = read_certificate(ssl.PEM_cert_to_DER_cert(certificate))
            name = self._mapper.name_of(shown.subject)
        except (CertificateFormatError, NoMatchingRuleError, ValueError) as error:
            raise NotABrokerError(str(error)) from error
        if len(self._principals) >= CERTIFICATES_MAX:
            self._principals.clear()
        return self._principals.setdefault(certificate, Principal("User", name, CONTROL))

"""Connections of the demo's clients: open, or logged in by the cluster's own file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headwater.client.security_options import SecurityOptions, security_keywords
from headwater.config.java_properties import read_java_properties
from headwater.ports.credentials import Credentials
from headwater.security.client_security import credentials_of
from headwater.security.jaas import parse_jaas
from headwater_spark.cluster.cluster import Cluster


@dataclass(frozen=True)
class Connection:
    """The brokers' addresses, and the file of the admin's login in a secure cluster."""

    servers: str
    spark: dict[str, str]
    """Options of Spark's readers and writers."""
    file: Path | None

    @classmethod
    def of(cls, cluster: Cluster) -> Connection:
        """The connection to a running cluster."""
        return cls(cluster.bootstrap_servers, cluster.spark_options(), cluster.client_properties)

    @property
    def properties(self) -> dict[str, str]:
        """The client's security properties, in Kafka's names; none in an open cluster."""
        return {} if self.file is None else read_java_properties(str(self.file), "the login")

    @property
    def sdk(self) -> SecurityOptions:
        """Keywords of `Producer`, `Consumer` and `Admin`."""
        return security_keywords(self.properties)

    @property
    def credentials(self) -> Credentials:
        """For blocking clients."""
        return credentials_of(self.properties)

    @property
    def librdkafka(self) -> dict[str, str]:
        """The configuration of librdkafka's clients."""
        found = self.properties
        if not found:
            return {"bootstrap.servers": self.servers}
        login = parse_jaas(found["sasl.jaas.config"]).options
        return {
            "bootstrap.servers": self.servers,
            "security.protocol": found["security.protocol"],
            "sasl.mechanism": found["sasl.mechanism"],
            "sasl.username": login["username"],
            "sasl.password": login["password"],
            "ssl.ca.location": found["ssl.truststore.location"],
        }

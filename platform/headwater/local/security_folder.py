"""`D/security`: a cluster's certificate authority and the certificates of its brokers.

    D/security/                  0700, each file 0600
      authority.pem              the authority's key and certificate; signs every leaf
      next-authority.pem         only while the authority is being replaced
      ca.pem                     trusted authorities: `ssl.truststore.location` of all
      broker-0.pem               key and certificate of a broker: its `ssl.keystore.location`

A new authority comes in three steps, each of which leaves a cluster that works: `trust_next` (both
are trusted), `reissue` (the new one signs every leaf), `drop_former` (only the new one is trusted).
The files say which step is next, so that an interrupted rotation continues: a next authority counts
once `ca.pem` trusts it, and the former one is the first in `ca.pem`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path

from headwater.clock import Clock
from headwater.errors import UsageError
from headwater.local.data_folders import FOLDER_MODE
from headwater.local.private_file import write_private
from headwater.security.certificates import (
    CertificateFacts,
    KeyPair,
    Subject,
    certificate_facts,
    issue,
    new_authority,
    sign,
    split_certificates,
)

FOLDER = "security"
SECRETS = "secrets.properties"
"""The keys that all brokers of a secure cluster share."""
AUTHORITY = "authority.pem"
NEXT_AUTHORITY = "next-authority.pem"
TRUSTED = "ca.pem"
READ_WITHIN_S = 15.0
"""Brokers look for changed files every 10 s."""
CERTIFICATE_BEGIN = b"-----BEGIN CERTIFICATE-----"


class RotationStep(Enum):
    """How far the replacement of the authority has come."""

    NONE = "none"
    BOTH_TRUSTED = "both-trusted"
    REISSUED = "reissued"


class SecurityFolder:
    """The files of one cluster. Methods raise UsageError for files that are absent or spoilt."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        """`directory`: the cluster's folder, D."""
        self.path = directory / FOLDER
        self._clock = clock

    @property
    def trusted_path(self) -> Path:
        """The file of trusted authorities."""
        return self.path / TRUSTED

    def leaf_path(self, name: str) -> Path:
        """The file with the key and certificate of `name`, such as `broker-0`."""
        return self.path / f"{name}.pem"

    def exists(self) -> bool:
        """True once there is an authority."""
        return (self.path / AUTHORITY).exists()

    def create(self, cluster_id: str, leaves: Mapping[str, Iterable[str]]) -> list[str]:
        """Make what is absent: the authority, and a leaf for each name, for these hosts. The names
        of new leaves. What exists stays as it is."""
        self.path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        os.chmod(self.path, FOLDER_MODE)
        if not self.exists():
            self._write(AUTHORITY, self._new_authority(cluster_id))
        if not self.trusted_path.exists():
            write_private(self.trusted_path, self._authority(AUTHORITY).certificate)
        made = [name for name in leaves if not self.leaf_path(name).exists()]
        self._issue(self._authority(AUTHORITY), {name: leaves[name] for name in made})
        return made

    def renew_due(self) -> list[str]:
        """Renew leaves of which two thirds of the lifetime have passed; their names."""
        now_ms = self._clock.now_ms()
        due = {n: f.hosts for n, f in self.leaves().items() if now_ms >= f.renewal_ms}
        self._issue(self._authority(AUTHORITY), due)
        return list(due)

    def sign(self, name: str, hosts: Iterable[str], request: bytes) -> bytes:
        """The certificate of a signing request, for `name` on these hosts; it is not kept here."""
        subject = Subject(name, tuple(hosts))
        return sign(self._authority(AUTHORITY), request, subject, self._clock.now_ms())

    def identity(self, name: str, hosts: Iterable[str]) -> KeyPair:
        """A new key and its certificate, which are not kept here."""
        subject = Subject(name, tuple(hosts))
        return issue(self._authority(AUTHORITY), subject, self._clock.now_ms())

    def authority_id(self) -> str:
        """Which authority signs now: the SHA-256 of its certificate."""
        return self._facts(AUTHORITY).sha256

    def trusted(self) -> bytes:
        """The certificates of the trusted authorities, as PEM."""
        return self._read(self.trusted_path)

    def leaves(self) -> dict[str, CertificateFacts]:
        """Every leaf's certificate, by its name."""
        files = sorted(self.path.glob("*.pem"))
        others = (AUTHORITY, NEXT_AUTHORITY, TRUSTED)
        return {f.stem: certificate_facts(self._read(f)) for f in files if f.name not in others}

    def authorities(self) -> list[CertificateFacts]:
        """The trusted authorities."""
        return [certificate_facts(c) for c in split_certificates(self._read(self.trusted_path))]

    def step(self) -> RotationStep:
        """How far a rotation has come. An interrupted `trust_next` counts as not begun."""
        trusted = self.authorities()
        if (self.path / NEXT_AUTHORITY).exists() and self._facts(NEXT_AUTHORITY) in trusted:
            return RotationStep.BOTH_TRUSTED
        is_former_trusted = trusted[0] != self._facts(AUTHORITY)
        return RotationStep.REISSUED if is_former_trusted else RotationStep.NONE

    def unread_s(self) -> float:
        """How many seconds brokers may still need until they have read the newest file; 0: none."""
        newest_s = max(path.stat().st_mtime for path in self.path.glob("*.pem"))
        age_s = max(0.0, self._clock.now_ms() / 1_000 - newest_s)  # files have finer times
        return max(0.0, READ_WITHIN_S - age_s)

    def trust_next(self, cluster_id: str) -> None:
        """Begin a rotation: a next authority, trusted beside the present one.

        It is trusted before its key is on disk: it can sign no leaf that nobody trusts.
        """
        exists = (self.path / NEXT_AUTHORITY).exists()
        pair = self._authority(NEXT_AUTHORITY) if exists else self._new_authority(cluster_id)
        trusted = self._authority(AUTHORITY).certificate + pair.certificate
        write_private(self.trusted_path, trusted)
        if not exists:
            self._write(NEXT_AUTHORITY, pair)

    def reissue(self) -> list[str]:
        """Sign every leaf, with a new key, by the next authority, which replaces the former."""
        if self.step() is not RotationStep.BOTH_TRUSTED:
            raise UsageError(
                f"{self.path} has no next authority that is trusted: begin with `trust_next`"
            )
        leaves = {name: facts.hosts for name, facts in self.leaves().items()}
        self._issue(self._authority(NEXT_AUTHORITY), leaves)
        os.replace(self.path / NEXT_AUTHORITY, self.path / AUTHORITY)
        return list(leaves)

    def drop_former(self) -> None:
        """End a rotation: trust only the authority that signed the leaves."""
        if self.step() is RotationStep.BOTH_TRUSTED:
            raise UsageError(
                f"{self.path}: leaves of the former authority are in use: reissue them"
            )
        write_private(self.trusted_path, self._authority(AUTHORITY).certificate)

    def _new_authority(self, cluster_id: str) -> KeyPair:
        return new_authority(f"Headwater CA {cluster_id}", self._clock.now_ms())

    def _issue(self, authority: KeyPair, leaves: Mapping[str, Iterable[str]]) -> None:
        for name, hosts in leaves.items():
            subject = Subject(name, tuple(hosts))
            self._write(f"{name}.pem", issue(authority, subject, self._clock.now_ms()))

    def _facts(self, name: str) -> CertificateFacts:
        return certificate_facts(self._authority(name).certificate)

    def _authority(self, name: str) -> KeyPair:
        text = self._read(self.path / name)
        key, begin, rest = text.partition(CERTIFICATE_BEGIN)
        if not begin or b"PRIVATE KEY" not in key:
            raise UsageError(f"{self.path / name} lacks the key or the certificate: restore it")
        return KeyPair(begin + rest, key)

    def _write(self, name: str, pair: KeyPair) -> None:
        write_private(self.path / name, pair.key + pair.certificate)

    def _read(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}: restore this file") from error

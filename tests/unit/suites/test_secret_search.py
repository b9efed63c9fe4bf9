"""The search for secrets finds a planted one, in each form, and leaves out what is private."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.local.cluster_spec import ClusterSpec
from headwater.local.secure_cluster import SecureCluster
from headwater.system import SystemClock, SystemEntropy
from headwater.testing import secret_search
from headwater.testing.secret_search import Finding, search, secrets_of


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    spec = ClusterSpec(tmp_path, "abc", 1, 9092, secure=True)
    SecureCluster(tmp_path, SystemClock(), SystemEntropy()).prepare(spec)
    return tmp_path


def test_a_clean_folder_has_none(directory: Path) -> None:
    (directory / "broker.log").write_text("ready")
    found, count = search(directory, secrets_of(directory))
    assert found == [] and count > 1, "arguments of processes count too"
    assert len(secrets_of(directory)) == 5


@pytest.mark.parametrize("encode", [lambda t: t.encode(), lambda t: base64.b64encode(t.encode())])
@pytest.mark.parametrize("what", ["the admin's password", "key of authority"])
def test_a_planted_secret_is_found(
    directory: Path, what: str, encode: Callable[[str], bytes]
) -> None:
    secret = secrets_of(directory)[what]
    log = directory / "logs" / "broker-0.log"
    log.parent.mkdir()
    log.write_bytes(b"before " + encode(secret) + b" after")
    found, _ = search(directory, secrets_of(directory))
    assert found == [Finding(str(log), what)]


def test_a_secret_across_two_chunks_is_found(
    directory: Path,
) -> None:
    secret = secrets_of(directory)["the admin's password"]
    also = directory / "also"
    also.mkdir()
    (also / "events").write_bytes(b"x" * (secret_search.CHUNK_BYTES - 5) + secret.encode())
    found, _ = search(directory, secrets_of(directory))
    assert [finding.secret for finding in found] == ["the admin's password"]

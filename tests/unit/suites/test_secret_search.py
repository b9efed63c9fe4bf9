"""The search for secrets finds a planted one, in each form, and leaves out what is private."""

from __future__ import annotations

import base64
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from headwater.local.cluster_spec import ClusterSpec
from headwater.local.secure_cluster import SecureCluster
from headwater.records.builder import build_batch
from headwater.records.compression import Compression, compress
from headwater.system import SystemClock, SystemEntropy
from headwater.testing import secret_search
from headwater.testing.secret_search import search, secrets_of


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


def packed(codec: Compression) -> Callable[[str], bytes]:
    return lambda text: bytes(compress(codec, b"before " + text.encode() + b" after"))


ENCODINGS: list[Callable[[str], bytes]] = [
    lambda t: b"before " + t.encode() + b" after",
    lambda t: b"before " + base64.b64encode(t.encode()) + b" after",
    lambda t: base64.b64encode(b"\0a\0" + t.encode() + b"|x"),
    lambda t: base64.b64encode(b"admin:" + t.encode()),
    lambda t: base64.urlsafe_b64encode(b"user:" + t.encode() + b">"),
    packed(Compression.GZIP),
    packed(Compression.ZSTD),
    packed(Compression.LZ4),
]


@pytest.mark.parametrize("encode", ENCODINGS)
@pytest.mark.parametrize("what", ["the admin's password", "key of authority"])
def test_a_planted_secret_is_found(
    directory: Path, what: str, encode: Callable[[str], bytes]
) -> None:
    secret = secrets_of(directory)[what]
    log = directory / "logs" / "broker-0.log"
    log.parent.mkdir()
    log.write_bytes(encode(secret))
    found, _ = search(directory, secrets_of(directory))
    assert {(f.place.removesuffix(", unpacked"), f.secret) for f in found} == {(str(log), what)}


def test_a_planted_secret_is_found_in_a_log_a_table_and_an_archive(directory: Path) -> None:
    what = "the admin's password"
    secret = secrets_of(directory)[what].encode()
    segment = directory / "data" / f"{0:020d}.log"
    segment.parent.mkdir()
    row = (0, None, b"x" * 100 + secret + b"x" * 1000, ())
    segment.write_bytes(bytes(build_batch([row], compression=Compression.ZSTD)))
    table, archive = directory / "part.parquet", directory / "app.zip"
    parquet.write_table(pa.table({"value": [b"x" * 1000 + secret] * 9}), table, compression="zstd")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("in/it", secret * 20)
    found, _ = search(directory, secrets_of(directory))
    # Zstandard and Deflate may leave a short text as it is.
    places = {f.place for f in found if f.place.endswith(", unpacked")}
    assert places == {f"{path}, unpacked" for path in (segment, table, archive)}


def test_what_cannot_be_read_is_not_passed_over(directory: Path) -> None:
    (directory / "events.gz").write_bytes(b"\x1f\x8b but not gzip")
    (directory / "loop").symlink_to("loop")
    found, _ = search(directory, secrets_of(directory))
    (finding,) = found
    assert finding.place.endswith("events.gz, unpacked") and "cannot be read" in finding.secret


def test_a_secret_across_two_chunks_is_found(
    directory: Path,
) -> None:
    secret = secrets_of(directory)["the admin's password"]
    also = directory / "also"
    also.mkdir()
    (also / "events").write_bytes(b"x" * (secret_search.CHUNK_BYTES - 5) + secret.encode())
    found, _ = search(directory, secrets_of(directory))
    assert [finding.secret for finding in found] == ["the admin's password"]

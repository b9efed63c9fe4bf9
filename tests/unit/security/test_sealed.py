"""The key that seals secrets at rest: a bad file is named, with the command that makes one."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from headwater.errors import UsageError
from headwater.security.sealed import KEY_BYTES, Sealer, read_key
from headwater.testing.clocks import SeededEntropy


def test_a_key_file_is_32_bytes_in_base64(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(base64.b64encode(b"k" * KEY_BYTES).decode() + "\n")
    assert read_key(path, "--key-file") == b"k" * KEY_BYTES


@pytest.mark.parametrize("text", ["", "short", "c2hvcnQ=", "not base64 !"])
def test_another_text_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"--key-file .*openssl rand -base64 32"):
        read_key(path, "--key-file")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_key(tmp_path / "none", "--key-file")


@pytest.mark.parametrize("sealed", ["", "AAAA", "###"])
def test_a_text_that_was_never_sealed_does_not_open(sealed: str) -> None:
    with pytest.raises(UsageError, match="the secret of alice does not open"):
        Sealer(b"k" * KEY_BYTES, SeededEntropy(1)).open(sealed, "alice")

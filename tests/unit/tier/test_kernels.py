"""Kernels that are compiled aside: rows are read one at a time until then, to the same values."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from headwater_tier.kernels import KERNELS, Kernels
from headwater_tier.typed.decoding import DeclaredFormat, Decoded
from headwater_tier.typed.formats.factory import decoder_for
from headwater_tier.typed.formats.rows import FIRST_ROWS
from headwater_tier.typed.without_registry import WithoutRegistry

WAITS = "import os; open(os.environ['GATE']).read()"
FAILS = "raise SystemExit(3)"
STRANGE = [b'{"n": 1, "n": 2}', b"{", b'{"n": 12345678901234567890123}', b'{"n": "x", "new": [1]}']


def module(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    (folder / "stand_in_compiler.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return "stand_in_compiler"


def test_kernels_are_ready_when_the_process_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    monkeypatch.setenv("GATE", str(gate))
    kernels = Kernels(module(tmp_path, monkeypatch, WAITS))
    assert kernels.are_ready
    kernels.compile_aside()
    kernels.compile_aside()  # once
    assert not kernels.are_ready
    gate.write_text("")
    kernels.wait_for_first()
    kernels.join()
    assert kernels.are_ready


def test_a_process_that_fails_or_is_ended_leaves_the_kernels_to_their_first_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kernels = Kernels(module(tmp_path, monkeypatch, FAILS))
    kernels.compile_aside()
    kernels.join()
    assert kernels.are_ready
    assert "ended with 3" in caplog.text
    waiting = Kernels(module(tmp_path, monkeypatch, WAITS))
    os.mkfifo(tmp_path / "never")
    monkeypatch.setenv("GATE", str(tmp_path / "never"))
    waiting.compile_aside()
    waiting.close()
    waiting.join()
    assert waiting.are_ready


def test_the_process_compiles_every_format(caplog: pytest.LogCaptureFixture) -> None:
    kernels = Kernels()
    kernels.compile_aside()
    kernels.wait_for_first()
    kernels.join()
    assert kernels.are_ready and "ended with" not in caplog.text


def test_rows_are_the_same_without_kernels() -> None:
    values = [b'{"n": %d, "s": "t\\u00e9xt", "d": 0.1, "b": {"c": null}}' % i for i in range(200)]
    blobs = [*values[: FIRST_ROWS + 20], *STRANGE, None, *values[FIRST_ROWS + 20 :]]

    def decoded() -> Decoded:
        decoder = decoder_for(DeclaredFormat("json"), pa.schema([]), WithoutRegistry())
        return decoder.decode(pa.chunked_array([pa.array(blobs, pa.binary())]))

    fast = decoded()
    KERNELS.are_ready = False
    try:
        slow = decoded()
    finally:
        KERNELS.are_ready = True
    assert slow.columns.equals(fast.columns)
    reasons = [[(misfit.row, misfit.reason) for misfit in one.misfits] for one in (slow, fast)]
    assert reasons[0] == reasons[1] and len(reasons[0]) >= 3

"""The lazily loaded names of `headwater_spark`, and the same for type checkers."""

from __future__ import annotations

import ast
from pathlib import Path

import headwater_spark

STUB = Path(headwater_spark.__file__).with_name("__init__.pyi")


def test_the_stub_declares_the_lazily_loaded_names() -> None:
    declared = {}
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            for name in node.names:
                assert name.asname == name.name
                declared[name.name] = node.module
    assert declared == headwater_spark.HOMES


def test_type_checkers_are_told_of_the_annotations() -> None:
    assert STUB.with_name("py.typed").exists()

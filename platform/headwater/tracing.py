"""Traces of the SDK: `from headwater.tracing import Tracing`. Needs the extra `otel`."""

from __future__ import annotations

from headwater.client.tracing import Tracing

__all__ = ["Tracing"]

"""Imported by the fork server alone: its children inherit the kernel that checks Avro data, which
would otherwise be loaded, or compiled, on the time of the first record that needs it."""

from __future__ import annotations

from headwater_tier.typed.formats.avro_rows import AvroSource

AvroSource('"long"').datum(b"\x02")

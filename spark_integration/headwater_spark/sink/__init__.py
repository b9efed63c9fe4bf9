"""The Spark sink: `format("headwater")` for writing."""

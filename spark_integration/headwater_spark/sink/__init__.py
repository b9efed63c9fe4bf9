"""The Spark sink: writing with `format("headwater")`."""

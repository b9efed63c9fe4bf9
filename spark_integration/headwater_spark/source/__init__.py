"""The Spark source: reading with `format("headwater")`, and topic and Delta table as one."""

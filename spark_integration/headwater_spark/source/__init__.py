"""The Spark source: `format("headwater")` for reading, and the union with history in Delta."""

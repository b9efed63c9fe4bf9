"""The schema registry: Confluent's REST interface over the compacted topic `_schemas`."""

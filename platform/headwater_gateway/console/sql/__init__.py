"""SQL over the records of a topic and of its tables, by DuckDB in a process of its own."""

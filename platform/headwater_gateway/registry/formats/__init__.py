"""Schema languages of the registry: one adapter module per foreign library."""

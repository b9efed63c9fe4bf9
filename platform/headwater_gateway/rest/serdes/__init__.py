"""Keys and values by a registered schema: from JSON to the bytes of a record, and back."""

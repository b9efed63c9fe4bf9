"""The transaction coordinator; so far, producer ids."""

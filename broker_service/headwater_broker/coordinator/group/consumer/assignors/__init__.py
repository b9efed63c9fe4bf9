"""The server-side assignors of consumer groups (KIP-848): uniform and range."""

"""One file per API key: its request and response for all versions."""

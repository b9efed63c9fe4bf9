"""The client SDK."""

"""The message browser: decode, filter, scan, tail, export, produce."""

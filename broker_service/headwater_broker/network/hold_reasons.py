"""Reasons for which a connection reads no further request for now: bits, several may be set."""

TURN = 1
"""This turn's share of work, or the turn itself, is used up. Bytes are still received."""
WRITE = 2
"""The client does not read its replies."""
HANDLER = 4
"""A general handler is running: as in Kafka, the next request waits for it."""
IN_FLIGHT = 8
"""Too many replies are parked."""
QUOTA = 16
"""The client is over a quota (KIP-219)."""
CLOSING = 32
"""Authentication failed: the connection closes behind the reply that says so."""

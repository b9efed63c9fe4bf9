"""The client's sans-IO state machines: events and replies in, decisions out."""

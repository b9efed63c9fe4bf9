"""Sans-IO machines of the client: events and replies in, decisions out; no sockets, no clocks."""

"""Security of the data plane: the session of a connection; authenticators and ACLs join it."""

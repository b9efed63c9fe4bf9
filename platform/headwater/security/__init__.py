"""Security without I/O, for brokers and clients: mechanisms, ACLs, principals, TLS settings."""

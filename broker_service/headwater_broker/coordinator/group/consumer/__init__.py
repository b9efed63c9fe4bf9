"""Consumer groups (KIP-848): the broker assigns partitions, members heartbeat."""

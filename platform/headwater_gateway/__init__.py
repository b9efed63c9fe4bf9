"""What speaks HTTP beside the brokers: the schema registry."""

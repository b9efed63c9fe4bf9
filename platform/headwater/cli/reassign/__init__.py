"""`headwater reassign`: replicas move to other brokers (KIP-455)."""

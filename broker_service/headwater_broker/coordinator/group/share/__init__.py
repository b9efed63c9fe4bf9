"""Share groups (KIP-932): membership and assignment; queues over topics."""

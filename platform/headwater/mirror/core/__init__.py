"""The decisions of the mirror: offsets, batches, stored state. No sockets and no clock."""

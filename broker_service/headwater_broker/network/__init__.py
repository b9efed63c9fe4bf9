"""Listeners and connections of the data plane, the gRPC control port, the status port."""

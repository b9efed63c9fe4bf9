"""Listeners and connections of the data plane, the gRPC control plane, the status port."""

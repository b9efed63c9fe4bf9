"""Bytes in, bytes out: the data plane and the control plane."""

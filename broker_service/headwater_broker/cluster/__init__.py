"""What the cluster is, and who decides it."""

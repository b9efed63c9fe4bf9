"""What the demos share."""

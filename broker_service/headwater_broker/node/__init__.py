"""The composition root: configuration, wiring, and a broker process from start to stop."""

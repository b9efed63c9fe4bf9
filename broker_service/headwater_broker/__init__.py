"""The broker process."""

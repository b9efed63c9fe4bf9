"""Log to Delta, and back."""

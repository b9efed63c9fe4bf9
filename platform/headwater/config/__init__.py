"""Every config key, one row each."""

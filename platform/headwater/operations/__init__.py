"""Changes of a running cluster's brokers in steps: drain, remove, rebalance, rolling restart."""

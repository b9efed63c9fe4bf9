"""The share coordinator: the delivery state of share partitions in `__share_group_state`."""

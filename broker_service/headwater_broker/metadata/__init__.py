"""Cluster metadata: the broker's cache, its registration, the ZooKeeper store and its znodes."""

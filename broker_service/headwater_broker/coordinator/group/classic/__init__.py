"""Classic groups: JoinGroup, SyncGroup, rebalances that all members join (KIP-62, KIP-345)."""

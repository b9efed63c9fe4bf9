"""Client quotas and the rates they are measured by (KIP-13, KIP-124, KIP-219, KIP-546)."""

"""Client quotas (KIP-13, KIP-124, KIP-219, KIP-546) and the rates they are measured by."""

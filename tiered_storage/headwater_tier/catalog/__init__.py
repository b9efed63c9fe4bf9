"""`_headwater_catalog`: what a cluster needs to be rebuilt, beside its log tables."""

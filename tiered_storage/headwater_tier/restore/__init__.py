"""`headwater restore`: a cluster again from its Delta tables alone."""

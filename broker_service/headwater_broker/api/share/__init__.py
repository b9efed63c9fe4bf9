"""ShareFetch and ShareAcknowledge: acknowledgements, reads, responses."""

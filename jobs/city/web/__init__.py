"""The city's live pages for traffic and police users."""

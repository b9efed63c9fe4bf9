"""Commands that read a broker's files."""

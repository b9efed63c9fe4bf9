"""The commands of `headwater tier` and what they print."""

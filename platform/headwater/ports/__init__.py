"""What the code needs of the outside, as small protocols."""

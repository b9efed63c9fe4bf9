"""The demo of `make demo`: a year of real flights through log, Spark and Delta, with a proof."""

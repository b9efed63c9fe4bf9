"""The demo behind `make demo`: a year of real flights through log, Spark and Delta, proven."""

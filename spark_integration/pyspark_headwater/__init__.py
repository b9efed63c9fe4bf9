"""Spark finds this package by its name and registers `format("headwater")`."""

"""The client's protocol logic without I/O: responses and time in, decisions out."""

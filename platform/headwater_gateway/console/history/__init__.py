"""The console's view of a topic's history: versions of its Delta tables, jumps to offsets."""

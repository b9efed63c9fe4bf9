"""What Delta keeps of a topic: versions of its tables, and jumps between version and offset."""

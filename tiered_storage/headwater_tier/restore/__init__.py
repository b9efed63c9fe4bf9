"""`headwater restore`: a cluster again from its Delta tables alone.

No record is copied: each log begins empty above its table's end, and brokers serve the history from
the table. `restore_plan` decides the offsets, `tables_and_zookeeper` writes metadata, `groups` the
committed offsets.
"""

"""The Spark sink: writing with `format("headwater")`.

A repeated micro-batch is not written twice: the coordinator answers "committed"
(`epoch_admission.refusal`), and `epoch_task` drains its rows.
"""

"""Every config key, one row each in `rows_*`; `row` has their validators."""

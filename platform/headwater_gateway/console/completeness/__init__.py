"""The console's view Completeness: the minutes that `headwater audit --to` has compared."""

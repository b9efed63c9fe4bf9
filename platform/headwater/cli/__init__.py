"""The `headwater` command; each package registers its own subcommands."""

"""The city of `make city`: cameras, six flows over topics and Delta tables, and their proof."""

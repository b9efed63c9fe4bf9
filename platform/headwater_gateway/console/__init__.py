"""The console: the cluster in a browser, rendered on the server."""

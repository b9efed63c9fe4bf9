"""The views of the console, one module per page of the navigation."""

"""Producer ids, and the pure core of the transaction coordinator: no request reaches it yet."""

"""The transaction coordinator: transactional ids in `__transaction_state`, and producer ids."""

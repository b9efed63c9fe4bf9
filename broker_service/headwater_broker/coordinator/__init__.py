"""Coordinators of groups, transactions and share states, and the runtime under them."""

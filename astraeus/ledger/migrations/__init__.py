"""The ledger's migrations; each has `upgrade(op)`."""

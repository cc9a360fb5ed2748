"""The tables, a file for each subject; `astraeus.ledger.tables` has them all."""

"""The SQL ledger: tables, rules the database enforces, queries, the change feed."""

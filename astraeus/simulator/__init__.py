"""Traces replayed through the real planner with simulated time: no Temporal, no ledger, no clock."""

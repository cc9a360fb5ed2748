"""Decisions over time: deterministic, no client library reachable from here."""

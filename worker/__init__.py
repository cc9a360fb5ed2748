"""Processes: the Temporal worker process, configuration, the embedded stack."""

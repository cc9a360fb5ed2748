"""How a cluster starts workers: the Executor protocol and its adapters."""

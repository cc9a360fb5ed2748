"""The program on a machine: holds the lease, runs workers under shims, reports."""

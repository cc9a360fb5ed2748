"""The core: importable without Temporal or a web server."""

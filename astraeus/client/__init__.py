"""The API's client, on httpx; what the CLI uses and users script with."""

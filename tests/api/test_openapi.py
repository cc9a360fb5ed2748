"""The OpenAPI document, and schemathesis over the whole API."""

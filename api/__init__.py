"""The HTTP front door: REST, the agents' endpoint, authentication, event streams."""

"""The routes: thin, over api.services."""

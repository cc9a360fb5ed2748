"""What the API does, apart from HTTP: used by the routes and by the console."""

"""The routes that are no calls of the client."""

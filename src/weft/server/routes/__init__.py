"""Routes that are not calls of the client."""

"""Routes that are not calls of the client, a module a noun."""

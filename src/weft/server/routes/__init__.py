"""Routes that are not calls of the client, one module for each noun."""

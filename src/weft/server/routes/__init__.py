"""Routes that are not calls of the client, a module for each thing that they are about."""

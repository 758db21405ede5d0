"""What authors import: the client, the worker and the names of `weft`."""

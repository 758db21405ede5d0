"""The HTTP server: the calls of the client as routes, who may make them, streams, and the workers' protocol."""

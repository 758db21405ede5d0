"""Executes tasks: the registry of handlers, the context they see, executors, log capture and graceful stop."""

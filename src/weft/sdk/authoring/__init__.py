"""Workflows that are written as Python functions, and compile to the definitions that YAML is another way to write."""

"""The generated pages, one module each."""

"""Jobs: workflows that are executed."""

"""Other systems, measured as Weft is."""

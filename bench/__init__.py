"""What Weft does in a second, always beside the raw limit or a peer measured in the same run."""

"""What is told as it happens: one reader for each thing that is looked at, however many look."""

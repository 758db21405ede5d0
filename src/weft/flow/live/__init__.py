"""Live DAGs as documents: what they consist of, what is wrong with them, and what each of their jobs means."""

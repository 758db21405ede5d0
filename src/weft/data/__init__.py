"""Data outside of the database: Parquet files, and how they are read."""

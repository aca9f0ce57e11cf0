"""Text, JSON and Parquet: lines of a file, and the one Table that edges and tables share."""

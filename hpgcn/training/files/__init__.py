"""Files of a run: its directory, records, result and timeline."""

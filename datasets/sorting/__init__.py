"""Edge lists into CSR, in memory or on disk."""

"""Strategy mop: aggregation by columns, update by rows."""

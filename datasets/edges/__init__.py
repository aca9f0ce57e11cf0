"""Edge lists: columns, ids, options, and the text or tables that hold them."""

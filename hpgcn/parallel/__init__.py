"""Owners of rows, and transfers between them: layouts, blocks, transfers, levels."""

"""The command line: parsers, commands and their output."""

"""Vector code emitted through LLVM."""

"""The process and its machine: devices, clocks, signals, faults, files, the terminal."""

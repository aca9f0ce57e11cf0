"""The process and its machine: devices, clocks, signals, faults, files, what is shown on a terminal."""

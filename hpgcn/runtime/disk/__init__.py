"""Files on a disk: arrays in them, the folder of these, and contents in the page cache."""

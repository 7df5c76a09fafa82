"""Further questions about a log, one file each."""

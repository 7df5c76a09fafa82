"""A profile of divergences goes in, proved bounds come out."""

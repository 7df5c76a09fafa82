"""What is known about two policies (a Profile) and every bound that follows from it."""

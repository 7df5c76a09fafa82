"""Logged responses go in, estimates and guarantees come out."""

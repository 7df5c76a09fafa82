"""Masks: which responses a trust region keeps, in our form and in trainers' own names."""

"""The experiment: sequence masks against clipping in a real training loop, small enough to know the truth.

It uses the package as a trainer would; the package never imports it, and it is not in the wheel.
"""

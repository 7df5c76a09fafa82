"""The commands, one module each, in the order in which they are shown."""

from bounds.cli import bstar, certify, compare, explain, figures, formats, largest, masks, metrics, verify

COMMANDS = (bstar, largest, certify, masks, explain, compare, metrics, formats, figures, verify)

__all__ = ["COMMANDS"]

"""Interim: what is to be a file of its own."""

from bounds.certificate.moments import Moments as Summary

__all__ = ["Summary"]

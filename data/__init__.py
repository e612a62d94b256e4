"""Logs on disk → validated columns → shards → batches."""

from data.loaders import load

__all__ = ["load"]

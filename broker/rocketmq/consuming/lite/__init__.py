"""Lite topics: many small topics in one, each consumed in order by its subscribers."""

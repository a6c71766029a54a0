"""Selectors as users write them, keys of kinds, and the comparison of two selectors."""

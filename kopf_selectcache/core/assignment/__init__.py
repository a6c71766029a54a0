"""Divide the work among replicas: hashes and ranges, who should own a range, and who may act on it now."""

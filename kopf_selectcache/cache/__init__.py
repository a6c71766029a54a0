"""The reads that handlers call."""

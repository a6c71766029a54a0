"""Operators with several replicas on the real API server, while replicas and servers are killed."""

"""Keeps the store of one kind true."""

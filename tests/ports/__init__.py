"""Operators in the shape of others that people run, and what is played to them: for tests and the bench."""

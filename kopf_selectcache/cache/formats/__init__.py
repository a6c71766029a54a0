"""The forms in which a read returns objects."""

"""Which objects are meant: labels, fields, regions and their comparison. Pure."""

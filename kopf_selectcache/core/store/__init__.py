"""The stores of one kind and their indexes. Pure."""

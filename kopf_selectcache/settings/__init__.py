"""The declarations of operators: options, filters, and the plan of streams that follows from them."""

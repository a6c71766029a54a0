"""What operators declare: options, filters and the plan of streams that follows from them."""

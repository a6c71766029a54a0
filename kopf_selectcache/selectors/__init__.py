"""What users write to select objects, and what comes of comparing two selectors."""

"""All messages of errors in one table, so that no other test has to compare sentences."""

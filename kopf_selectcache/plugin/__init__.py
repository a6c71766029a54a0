"""The glue between Kopf and the caches."""

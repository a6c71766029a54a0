"""The integration of the caches into Kopf."""

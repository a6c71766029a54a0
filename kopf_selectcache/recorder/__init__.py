"""Records Kubernetes Events: few writes, none lost without being counted."""

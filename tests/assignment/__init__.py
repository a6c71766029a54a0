"""The model of replicas that share the work: the product's own rules, a server, and all that can go wrong.
`python -m tests.assignment` explores it."""

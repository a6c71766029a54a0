"""Requests of kubectl only: tables, scales, OpenAPI and protobuf."""

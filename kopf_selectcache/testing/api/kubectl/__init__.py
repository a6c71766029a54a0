"""What only kubectl asks for: tables, scales, OpenAPI and protobuf."""

"""How a server is followed: messages, pages and the state machine of a stream. Pure."""

"""A hostile API server over real sockets: attacks as functions, the program that measures them (`make
hostile`), and their tests."""

"""Parts that every room may use: output, errors, streams, ports and the versions of this program."""

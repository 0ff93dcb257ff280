"""The core's interfaces to the outside, as protocols; `broker.shell` has the real implementations."""

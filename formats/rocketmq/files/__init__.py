"""The files of a RocketMQ store, and of the settings beside it."""

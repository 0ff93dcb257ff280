"""The configuration files of a RocketMQ node, controller or proxy: their properties, and the files that they name."""

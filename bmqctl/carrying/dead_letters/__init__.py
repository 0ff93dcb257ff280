"""Dead letters of RocketMQ's groups: listed, shown, and sent again, with a mark for each that was."""

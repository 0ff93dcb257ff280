"""RocketMQ's remoting protocol: frames, headers, bodies, and the streams between brokers and controllers."""

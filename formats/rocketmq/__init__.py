"""The files and the remoting protocol of Apache RocketMQ."""

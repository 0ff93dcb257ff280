"""Access control of RocketMQ: users and their signatures, policies, and what requests concern (ACL 1.0 and 2.0)."""

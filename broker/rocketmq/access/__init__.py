"""Who may do what: users and their signatures, policies and what requests want (RocketMQ ACL 1.0 and 2.0)."""

"""Schema messages: negotiation, authentication, control, cluster and elector; BER and JSON codecs."""

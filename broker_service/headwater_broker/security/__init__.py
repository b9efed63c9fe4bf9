"""Security of the broker: sessions, SASL mechanisms, ACLs, delegation tokens, audit."""
